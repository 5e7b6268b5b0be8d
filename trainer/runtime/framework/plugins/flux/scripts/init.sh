#!/bin/bash
# Runs in the init container, whose image has Flux built under /opt. Puts it, and its configuration, where the
# training container finds both.
set -euo pipefail

config=/etc/flux-config
shared=/mnt/flux

# /opt/view is a link into this directory, which holds one view of all packages.
views=(/opt/views/._view/*)
mkdir -p "${shared}/view"
cp -a "${views[0]}/." "${shared}/view/"
# The view's files are links into the packages.
cp -a /opt/software "${shared}/"

mkdir -p \
  "${shared}/config/etc/curve" \
  "${shared}/config/etc/flux/config" \
  "${shared}/config/etc/flux/system/cron.d" \
  "${shared}/config/run/flux" \
  "${shared}/config/var/lib/flux"
cp "${config}/broker.toml" "${shared}/config/etc/flux/config/broker.toml"
echo "flux-installer: Flux is in ${shared}"
