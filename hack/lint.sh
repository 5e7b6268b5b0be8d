#!/usr/bin/env bash
# Checks the repository for what a reviewer should not have to look for.
#
#   hack/lint.sh STATICCHECK_BINARY
set -o errexit -o nounset -o pipefail

staticcheck=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0

step() { printf '%s lint: %s\n' "$(date +%T)" "$*"; }
fail() {
  printf 'lint: %s\n' "$*" >&2
  status=1
}

step format
mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.go' | while read -r f; do [[ -f $f ]] && echo "$f"; done)
unformatted=$(gofmt -l "${files[@]}")
[[ -z $unformatted ]] || fail "run gofmt -w on:"$'\n'"$unformatted"

step leftovers
if git grep --untracked -nE 'TO[D]O|FIX[M]E' -- ':!LICENSE'; then
  fail "finish it or file it, but leave no note in the code"
fi

step shell scripts
while read -r script; do
  bash -n "$script" || fail "$script is not valid bash"
done < <(git ls-files --cached --others --exclude-standard -- '*.sh' .ci/run)

step go vet
go vet ./... || fail "go vet found something"

step staticcheck
"$staticcheck" ./... || fail "staticcheck found something"

exit $status
