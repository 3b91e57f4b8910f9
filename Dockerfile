# Two stages: what builds stays behind. The second runs without root and holds nothing but Python and Loopline.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY config/requirements.lock ./config/requirements.lock
COPY proxy ./proxy
# Nothing but what the lock names, by its hash (`make lock`); then Loopline itself, which brings nothing more.
RUN python -m venv /opt/loopline && /opt/loopline/bin/pip install --no-cache-dir --require-hashes -r config/requirements.lock && /opt/loopline/bin/pip install --no-cache-dir --no-deps .

FROM python:3.11-slim
RUN useradd --system --create-home --uid 10001 loopline
COPY --from=build /opt/loopline /opt/loopline
USER 10001
WORKDIR /home/loopline
# A container is reached from outside, so it listens on every address; Loopline then refuses to start without client
# keys (LOOPLINE_ACCESS_KEYS_FILE) unless LOOPLINE_INSECURE=true says that the network in front of it is trusted.
ENV LOOPLINE_HOST=0.0.0.0 \
    PATH=/opt/loopline/bin:$PATH
EXPOSE 8780
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8780/healthz', timeout=2)"]
ENTRYPOINT ["loopline"]
CMD ["serve"]
