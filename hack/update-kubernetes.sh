#!/usr/bin/env bash
# Moves Muster to another version of Kubernetes: k8s.io/kubernetes, every module that it publishes from
# its staging folder, and the version that the binaries report. go.mod is left tidy.
#
#   hack/update-kubernetes.sh v1.37.3            change the files
#   hack/update-kubernetes.sh --dry-run v1.37.3  print the change, leave the files alone
#
# Libraries with versions of their own (controller-runtime, JobSet, KWOK, etcd) stay where they are,
# unless the new Kubernetes needs them newer. Build and test afterwards: a new minor version changes
# the scheduling framework.
set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

usage() {
  sed -n '/^#   hack/s/^#  *//p' "$root/hack/update-kubernetes.sh" >&2
  exit 2
}

dry_run=false
if [[ ${1:-} == --dry-run ]]; then
  dry_run=true
  shift
fi
[[ $# -eq 1 ]] || usage
version=$1
if [[ ! $version =~ ^v1\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$ ]]; then
  echo "version: \"$version\" is not a release of Kubernetes like v1.37.2" >&2
  exit 2
fi
# v1.37.2 of Kubernetes is v0.37.2 of its staging modules.
staging_version=v0${version#v1}

new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
cp go.mod Makefile "$new"

# Kubernetes requires the modules that it publishes at a placeholder version; the list changes between
# versions.
kubernetes_mod=$(cd "$new" && GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"GoMod": "\(.*\)",\{0,1\}$/\1/p')
mapfile -t staging < <(sed -n 's|^[[:space:]]*\(k8s\.io/[^ ]*\) v0\.0\.0\( //.*\)\{0,1\}$|\1|p' "$kubernetes_mod" | sort -u)
if [[ ${#staging[@]} -eq 0 ]]; then
  echo "k8s.io/kubernetes@$version names no staging modules: its go.mod has changed its form" >&2
  exit 1
fi

edits=("-require=k8s.io/kubernetes@$version")
while read -r old; do
  edits+=("-dropreplace=$old")
done < <(sed -n 's/^\(replace \|[[:space:]]\)[[:space:]]*\(k8s\.io\/[^ ]*\) => k8s\.io\/.*/\2/p' go.mod)
# Required versions are only a floor under the replacements, but a reader takes them for the truth.
while read -r required; do
  for module in "${staging[@]}"; do
    [[ $module != "$required" ]] || edits+=("-require=$module@$staging_version")
  done
done < <(sed -n 's|^[[:space:]]*\(k8s\.io/[^ ]*\) v0\..*|\1|p' go.mod)
(
  cd "$new"
  go mod edit "${edits[@]}"
  {
    printf 'replace (\n'
    for module in "${staging[@]}"; do
      printf '%s => %s %s\n' "$module" "$module" "$staging_version"
    done
    printf ')\n'
  } >>go.mod
  go mod edit -fmt
)
sed -i "s/^KUBERNETES_VERSION := .*/KUBERNETES_VERSION := $version/" "$new/Makefile"

for file in go.mod Makefile; do
  diff -u --label "a/$file" --label "b/$file" "$file" "$new/$file" || true
done
if $dry_run; then
  exit
fi

cp "$new/go.mod" "$new/Makefile" .
go mod tidy
# The tools load the same sources; their modules share the build cache only at equal versions.
if [[ -f hack/tools/go.mod ]]; then
  cd hack/tools
  for module in "${staging[@]}"; do
    if grep -q "^[[:space:]]*$module " go.mod; then
      go mod edit "-require=$module@$staging_version"
    fi
  done
  go mod tidy
fi
