"""Reports a training's progress to its TrainJob. Needs nothing but Python.

In the training code of a TrainJob, where the gate TrainJobStatus is on:

    import progress
    progress.report(percent=42, remaining_seconds=60, metrics={"loss": 0.5})

or, from a shell: python3 progress.py 42
"""

import datetime
import json
import os
import ssl
import sys
import urllib.request


def report(percent=None, remaining_seconds=None, metrics=None):
    """Replaces the progress in the TrainJob's status. Does nothing where nobody takes reports."""
    url = os.environ.get("KUBEFLOW_TRAINER_SERVER_URL")
    if not url:
        return
    status = {"lastUpdatedTime": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
    if percent is not None:
        status["progressPercentage"] = int(percent)
    if remaining_seconds is not None:
        status["estimatedRemainingSeconds"] = int(remaining_seconds)
    if metrics:
        status["metrics"] = [{"name": name, "value": str(value)} for name, value in metrics.items()]
    # Both files change while the pod runs, so they are read each time.
    with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
        token = file.read().strip()
    trust = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
    request = urllib.request.Request(
        url,
        data=json.dumps({"trainerStatus": status}).encode(),
        headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"},
        method="POST",
    )
    urllib.request.urlopen(request, timeout=10, context=trust).close()


if __name__ == "__main__":
    report(percent=float(sys.argv[1]))
