#!/bin/bash
# Runs in the training container, with the command of the TrainJob as its arguments. Starts a Flux broker on every
# node; the one on the first runs the command over all of them. Without a command the brokers stay up, for use by
# hand: source /mnt/flux/flux-view.sh, then flux proxy "${fluxsocket}" bash.
set -euo pipefail

# Sets lead, hosts, cores, gpus and run_flags.
source /etc/flux-config/job.sh

shared=/mnt/flux
view="${shared}/view"
config="${shared}/config"

# After the image's own programs, so that the image's Python stays what it is.
export PATH="${PATH}:${view}/bin"
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}:${view}/lib"
for python in "${view}"/lib/python3*; do
  export PYTHONPATH="${PYTHONPATH:-}:${python}/site-packages"
done
export FLUX_RC_EXTRA="${view}/etc/flux/rc1.d"
cp -a "${shared}/software/." /opt/software/

cat > "${shared}/flux-view.sh" <<ENVIRONMENT
export PATH='${PATH}'
export LD_LIBRARY_PATH='${LD_LIBRARY_PATH}'
export PYTHONPATH='${PYTHONPATH:-}'
export fluxsocket='local://${config}/run/flux/local'
ENVIRONMENT

# Flux refuses a certificate that others can read.
install -m 0600 /curve/curve.cert "${config}/etc/curve/curve.cert"

resources=(--hosts="${hosts}" --cores="${cores}")
if [[ -n "${gpus}" ]]; then
  resources+=(--gpus="${gpus}")
fi
flux R encode "${resources[@]}" > "${config}/etc/flux/system/R"

broker=(
  flux broker
  --config-path="${config}/etc/flux/config"
  -Scron.directory="${config}/etc/flux/system/cron.d"
  -Slocal-uri="local://${config}/run/flux/local"
  -Slog-stderr-level=0
  -Slog-stderr-mode=local
  -Srundir="${config}/run/flux"
  -Sstatedir="${config}/var/lib/flux"
  -Stbon.fanout=256
)

if [[ "$(hostname)" == "${lead}" ]]; then
  if [[ $# -eq 0 ]]; then
    exec "${broker[@]}"
  fi
  # The flags are several words.
  # shellcheck disable=SC2086
  exec "${broker[@]}" flux run ${run_flags} "$@"
fi

# The others come and go with the first: until it answers, try again.
until "${broker[@]}"; do
  echo "flux: the broker of ${lead} cannot be joined yet" >&2
  sleep 5
done
