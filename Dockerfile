# The command contrastive-reasoning in a container: docs/gpus_and_clusters.md
#   docker build -t contrastive-reasoning:cpu .
#   docker build -t contrastive-reasoning:cuda --build-arg DEVICE=cuda .
ARG PYTHON=python:3.11.14-slim-bookworm
ARG DEVICE=cpu

FROM ${PYTHON} AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# The dependencies have layers of their own, so a change of the code does not install torch again: pip finds no package
# beside pyproject.toml here.
FROM ${PYTHON} AS base
WORKDIR /dependencies
COPY pyproject.toml constraints.txt README.md LICENSE ./

# pip prefers the 2.13.0+cpu of this page to the 2.13.0 of the package index.
FROM base AS cpu
RUN pip install --no-cache-dir -c constraints.txt --find-links https://download.pytorch.org/whl/cpu/torch/ .

# torch of the package index brings the CUDA libraries with it. The host has the driver.
FROM base AS cuda
RUN pip install --no-cache-dir -c constraints.txt '.[gpu]'

FROM ${DEVICE}
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-deps --force-reinstall /wheels/*.whl \
    && useradd --create-home --uid 1000 researcher \
    && install --directory --owner researcher /workspace
USER 1000
# Runs write outputs/ and mlruns/ here.
WORKDIR /workspace
ENTRYPOINT ["contrastive-reasoning"]
CMD ["list"]
