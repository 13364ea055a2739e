# syntax=docker/dockerfile:1
# The program alone; PostgreSQL is beside it (docker-compose.yml shows how).

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --release --locked --package posthorn-server --bin posthorn \
    && cp target/release/posthorn /usr/local/bin/posthorn

FROM debian:bookworm-slim
# Roots of the system beside the built-in ones, so that an operator's own authority can be added.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --user-group --no-create-home --shell /usr/sbin/nologin posthorn
COPY --from=build /usr/local/bin/posthorn /usr/local/bin/posthorn
USER posthorn
EXPOSE 8400
# The program is process 1 and takes SIGTERM itself: it stops accepting, waits for what is out, and exits 0.
STOPSIGNAL SIGTERM
ENTRYPOINT ["posthorn"]
CMD ["serve"]
