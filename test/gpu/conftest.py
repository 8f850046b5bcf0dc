"""Divides the processes of a run (`pytest -n`) among the GPUs that there are."""

import os

import torch

worker = os.environ.get("PYTEST_XDIST_WORKER", "")
if worker and torch.cuda.device_count() > 1:  # which initialises nothing
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    devices = devices if devices != [""] else [str(index) for index in range(torch.cuda.device_count())]
    os.environ["CUDA_VISIBLE_DEVICES"] = devices[int(worker.removeprefix("gw")) % len(devices)]
