# CoEval with exactly the packages of requirements.lock, under a user who is not root: make image
FROM python:3.13-slim AS build
WORKDIR /source
RUN python -m venv /opt/coeval
COPY requirements.lock ./
RUN /opt/coeval/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/coeval/bin/pip install --no-cache-dir --no-index --no-deps --no-build-isolation .

FROM python:3.13-slim
COPY --from=build /opt/coeval /opt/coeval
RUN useradd --create-home --uid 10001 coeval
ENV PATH=/opt/coeval/bin:$PATH
USER coeval
# Mount the folder of your experiment here; give keys as environment variables, never in the image.
WORKDIR /home/coeval/work
ENTRYPOINT ["coeval"]
CMD ["--help"]
