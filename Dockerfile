# CPU:  docker build --tag csml .
# CUDA: docker build --tag csml --build-arg BASE=nvidia/cuda:12.8.1-base-ubuntu24.04 .   (then: docker run --gpus all …)
# Run:  docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/data" csml pretrain --data photos --out runs/mine
ARG BASE=python:3.11-slim
FROM ${BASE}

# The CUDA images have no Python.
RUN python3 -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || ( \
        apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv && \
        rm -rf /var/lib/apt/lists/* )

# EXTRAS: which parts to install. PIP_OPTIONS: for pip, such as another index with a torch for the CPU only, which is smaller.
ARG EXTRAS=all
ARG PIP_OPTIONS=""
COPY pyproject.toml constraints.txt README.md LICENSE /source/
COPY src /source/src
RUN python3 -m venv /opt/csml && \
    /opt/csml/bin/pip install --no-cache-dir ${PIP_OPTIONS} --constraint /source/constraints.txt "/source[${EXTRAS}]" && \
    rm -r /source

ENV PATH=/opt/csml/bin:$PATH CSML_CACHE=/data/.cache/csml HOME=/data
WORKDIR /data
ENTRYPOINT ["csml"]
CMD ["--help"]
