# syntax=docker/dockerfile:1
FROM python:3.12-slim AS build
WORKDIR /src
RUN pip install --no-cache-dir uv
COPY pyproject.toml README.md LICENSE ./
COPY channels ./channels
COPY adapters ./adapters
COPY config ./config
# uv applies the tested versions of pyproject.toml (constraint-dependencies).
RUN uv sync --no-dev --no-editable --compile-bytecode

FROM python:3.12-slim
RUN useradd --system --uid 10001 --home-dir /data bridge && mkdir /data && chown bridge /data
COPY --from=build /src/.venv /src/.venv
ENV PATH=/src/.venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# By number, so that an orchestrator can see that it is not root.
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
# The port of config.example.yaml; another one needs another check.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["channel-bridge"]
CMD ["run", "--config", "/etc/channel-bridge/config.yaml"]
