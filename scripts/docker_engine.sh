#!/usr/bin/env bash
# A Docker engine for tests where none runs.
#
#   docker_engine.sh start FOLDER   does nothing where an engine answers; else installs (root on Debian) and starts one
#   docker_engine.sh stop FOLDER    ends the one that it started, and only that one, and removes the folder
#
# What the engine has lies in FOLDER. `docker` without it finds the engine at its usual socket.
set -uo pipefail
folder=${2:?usage: docker_engine.sh start|stop FOLDER}
PATH=$PATH:/usr/sbin:/sbin

answers() { docker info >/dev/null 2>&1; }

start() {
    if command -v docker >/dev/null && answers; then
        echo "A Docker engine runs here already"
        return 0
    fi
    # Program and the Debian package that has it.
    local missing=() pair
    for pair in dockerd:docker.io docker:docker.io debootstrap:debootstrap iptables:iptables; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    if [ "$(id -u)" -ne 0 ] || { [ ${#missing[@]} -gt 0 ] && ! command -v apt-get >/dev/null; }; then
        echo "No Docker engine answers, and none is to be started here (not root, or not Debian)" >&2
        return 1
    fi
    if [ ${#missing[@]} -gt 0 ]; then
        echo "Installing ${missing[*]}"
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null || return 1
    fi
    # The package may have started it.
    if answers; then return 0; fi
    mkdir -p "$folder"
    setsid dockerd --data-root "$folder/data" --exec-root "$folder/run" --pidfile "$folder/pid" >"$folder/log" 2>&1 </dev/null &
    local waited=0
    until answers; do
        if ! kill -0 $! 2>/dev/null || [ "$waited" -ge 60 ]; then
            echo "The Docker engine does not start. The end of its log:" >&2
            tail -n 10 "$folder/log" >&2
            return 1
        fi
        sleep 1
        waited=$((waited + 1))
    done
    echo "Started a Docker engine"
}

stop() {
    local pid waited=0
    pid=$(cat "$folder/pid" 2>/dev/null) || return 0
    # The number may be another program's by now.
    if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]; then
        kill "$pid"
        while [ -e "/proc/$pid" ] && [ "$waited" -lt 60 ]; do
            sleep 1
            waited=$((waited + 1))
        done
    fi
    rm -rf "$folder"
}

case ${1:-} in
    start) start ;;
    stop) stop ;;
    *) echo "usage: docker_engine.sh start|stop FOLDER" >&2; exit 2 ;;
esac
