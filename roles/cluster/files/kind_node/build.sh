#!/bin/bash
# Builds a node image for kind from Debian's packages and the programs of the provider kind, without a network.
#
# Needs docker. From the environment:
#   IMAGE               name of the node image
#   BASE                name of the image with Debian's packages, removed at the end
#   REPOSITORY          first part of the names of the cluster's images, as in kind-config.yaml.j2 and containerd.toml
#   KUBERNETES_VERSION  such as v1.36.3
#   BIN                 folder with the programs
#   SCRATCH             a folder for files, removed at the end
#   PAUSE_NAMES         further names of the image of `pause`, for pods that ask for it by its official name
# Says on standard output what it does.
set -euo pipefail
recipe=$(cd -- "$(dirname -- "$0")" && pwd)
images=()

# What is left behind when this is broken off would be in the way of nothing, but take room.
# shellcheck disable=SC2329 # called by the trap
clean_up() {
    rm -rf "$SCRATCH"
    if [ ${#images[@]} -gt 0 ]; then docker rmi "${images[@]}" >/dev/null 2>&1 || true; fi
    docker rmi "$BASE" >/dev/null 2>&1 || true
    docker image prune --force --filter label=turb-kub.io/build=kind-node >/dev/null 2>&1 || true
}
trap clean_up EXIT
step() { echo "$* ($SECONDS s)"; }

context=$SCRATCH/context
mkdir -p "$context/bin"
cp "$recipe"/{Dockerfile,containerd.toml,crictl.yaml,default-storage.yaml,entrypoint,kubelet.service} "$context/"
for program in kubelet kubeadm kubectl kube-proxy crictl; do cp -L "$BIN/$program" "$context/bin/"; done
: >"$context/images.tar" # so that the context is complete for the stage kube-proxy
build() {
    DOCKER_BUILDKIT=0 docker build --quiet --network none --build-arg "BASE=$BASE" --build-arg "KUBERNETES_VERSION=$KUBERNETES_VERSION" \
        --build-arg "PAUSE_IMAGE=$REPOSITORY/pause:built" --build-arg "PAUSE_NAMES=${PAUSE_NAMES:-}" "$@" "$context" >/dev/null
}

# An image of one static program.
image() { # NAME PROGRAM
    tar -C "$BIN" --owner=0 --group=0 --transform 's,^,usr/local/bin/,' -ch "$2" |
        docker import --change 'ENV PATH=/usr/local/bin' --change "ENTRYPOINT [\"/usr/local/bin/$2\"]" - "$1" >/dev/null
    images+=("$1")
}
step "images of the control plane"
for program in kube-apiserver kube-controller-manager kube-scheduler; do
    image "$REPOSITORY/$program:$KUBERNETES_VERSION" "$program"
done
for program in etcd coredns pause; do image "$REPOSITORY/$program:built" "$program"; done
step "the image of kube-proxy"
build --target kube-proxy --tag "$REPOSITORY/kube-proxy:$KUBERNETES_VERSION"
images+=("$REPOSITORY/kube-proxy:$KUBERNETES_VERSION")
docker save --output "$context/images.tar" "${images[@]}"
step "the node image"
build --target node --tag "$IMAGE"
step "done"
