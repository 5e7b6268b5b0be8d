#!/usr/bin/env bash
# Generates deepcopy methods and CustomResourceDefinitions from the API types.
#
#   hack/generate.sh           write the generated files
#   hack/generate.sh --verify  fail if a generated file differs from what the types say
set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

crds=$root/manifests/crds
packages=(
  ./podgroup/api/v1alpha1
  ./trainer/api/v1alpha1
)

# controller-gen comes from its own module, but has to load packages of the main one: build it there, run it here.
bin=$root/bin/controller-gen
(cd hack/tools && go build -o "$bin" sigs.k8s.io/controller-tools/cmd/controller-gen)

generate() { # generate OUTPUT_DIRECTORY_OF_CRDS
  mkdir -p "$1"
  for package in "${packages[@]}"; do
    compgen -G "$package/*.go" >/dev/null || continue
    "$bin" object paths="$package"
    # Job and pod templates keep their labels and annotations only if the schema of their metadata is spelled out.
    "$bin" crd:generateEmbeddedObjectMeta=true paths="$package" output:crd:artifacts:config="$1"
  done
}

if [[ ${1:-} != --verify ]]; then
  generate "$crds"
  exit
fi

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
for package in "${packages[@]}"; do
  mkdir -p "$fresh/before/$package"
  cp "$package"/zz_generated.deepcopy.go "$fresh/before/$package/"
done
generate "$fresh/crds"
status=0
for package in "${packages[@]}"; do
  diff -u "$fresh/before/$package/zz_generated.deepcopy.go" "$package/zz_generated.deepcopy.go" || status=1
done
for crd in "$fresh"/crds/*.yaml; do
  diff -u "$crds/$(basename "$crd")" "$crd" || status=1
done
if [[ $status -ne 0 ]]; then
  echo "generated files are stale: run hack/generate.sh and commit the result" >&2
fi
exit $status
