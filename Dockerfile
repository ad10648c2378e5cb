# hexforge as a command: docker build -t hexforge . && docker run --rm -v "$PWD:/models" hexforge check model.onnx
FROM python:3.13-slim AS development
# hadolint ignore=DL3008 # the compiler of whatever Debian the image is of
RUN apt-get update && apt-get install -y --no-install-recommends g++ git make && rm -rf /var/lib/apt/lists/*

FROM development AS build
COPY . /source
RUN pip wheel --no-cache-dir --no-deps -w /wheels /source

FROM python:3.13-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -rf /wheels && useradd --create-home --uid 1000 hexforge
USER 1000
WORKDIR /models
ENTRYPOINT ["hexforge"]
