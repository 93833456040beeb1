# What a user does with a checkout. A target only finds the virtual environment and sets folders: what is done is in
# site.yml and playbooks/, what is checked in scripts/.

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.NOTPARALLEL:

# --- Folders: everything that a tool writes goes into the cache (docs/architecture.md) ---
ifeq ($(TURB_KUB_CACHE_DIR),)
TURB_KUB_CACHE_DIR := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/turb-kub
endif
export TURB_KUB_CACHE_DIR
export ANSIBLE_HOME := $(TURB_KUB_CACHE_DIR)/ansible
export ANSIBLE_LOCAL_TEMP := $(ANSIBLE_HOME)/tmp
export ANSIBLE_REMOTE_TEMP := $(ANSIBLE_HOME)/tmp
export ANSIBLE_ASYNC_DIR := $(ANSIBLE_HOME)/async
export PYTHONPYCACHEPREFIX := $(TURB_KUB_CACHE_DIR)/pycache

# --- What another project left in the user's environment must not decide here ---
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
unexport ANSIBLE_INVENTORY ANSIBLE_ROLES_PATH ANSIBLE_LIBRARY ANSIBLE_COLLECTIONS_PATH
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
# Compiled files go into the cache, so that not writing any would only make each start of Ansible take seconds.
unexport PYTHONDONTWRITEBYTECODE
# Ansible refuses to start in a locale that is not UTF-8 or not installed: what a bare machine has.
ifneq ($(shell locale charmap 2>/dev/null),UTF-8)
export LC_ALL := C.UTF-8
endif

# --- Knobs ---
# PROVIDER: what cluster the scenarios of molecule have. CLUSTER_NAME: a second cluster beside the first. ARGS: more arguments for the program behind the target.
export CLUSTER_NAME
export PROVIDER
play = .venv/bin/ansible-playbook $(if $(CLUSTER_NAME),-e cluster_name='$(CLUSTER_NAME)')

.PHONY: help
help: ## show this text
	@echo 'turb-kub: a Kubernetes scheduler that gives each node an honest memory budget'
	@echo
	@sed -n 's/\$$\$$/$$/g; s/^\([a-z-]*\):.*## /\1	/p' Makefile | while IFS='	' read -r target text; do \
		printf '  make %-14s %s\n' "$$target" "$$text"; done
	@echo
	@echo "Knobs: CLUSTER_NAME=name, ARGS='more arguments', NODE_MEM_LIMIT_MB=mebibytes, and every variable of inventory/,"
	@echo "for example: make up ARGS='-e scheduler_http_port=10271'"

.PHONY: up
up: venv-ansible ## bring up cluster, scheduler and pods, and show where each pod went
	@$(play) site.yml $(ARGS)

.PHONY: down
down: venv-ansible ## remove the cluster and all that belongs to it
	@$(play) playbooks/teardown.yml $(ARGS)

.PHONY: redeploy
redeploy: venv-ansible ## bring a changed scheduler into the running cluster
	@$(play) playbooks/redeploy.yml $(ARGS)

.PHONY: status
status: venv-ansible ## show the nodes' requested memory, and each pod with the reason for its node
	@.venv/bin/python scripts/cluster.py status $(ARGS)

.PHONY: explain
explain: venv-ansible ## say of one pod, node by node, why there or why nowhere: POD=namespace/name
	@.venv/bin/python scripts/cluster.py explain $(POD) $(ARGS)

.PHONY: manifests
manifests: venv-ansible ## print what the scheduler needs on a cluster as plain YAML, for kubectl apply
	@.venv/bin/python scripts/manifests.py $(ARGS)

.PHONY: env
env: venv-ansible ## print shell lines for kubectl: eval "$$(make env)"
	@.venv/bin/python scripts/cluster.py env

.PHONY: test
test: venv-dev ## run all tests: unit, api, cluster, ansible, molecule on kwok and, with Docker, on kind
	@.venv/bin/python scripts/run_tests.py unit api cluster ansible molecule molecule-kind

.PHONY: test-unit
test-unit: venv-dev ## run the tests without a cluster
	@.venv/bin/python scripts/run_tests.py unit -- $(ARGS)

.PHONY: test-api
test-api: venv-dev ## run the scheduler against a real API server
	@.venv/bin/python scripts/run_tests.py api -- $(ARGS)

.PHONY: test-cluster
test-cluster: venv-dev ## compare the scheduler with kube-scheduler on generated clusters
	@.venv/bin/python scripts/run_tests.py cluster -- $(ARGS)

.PHONY: test-ansible
test-ansible: venv-dev ## run the tests of roles and playbooks
	@.venv/bin/python scripts/run_tests.py ansible -- $(ARGS)

.PHONY: molecule
molecule: venv-dev ## run the molecule scenarios, with PROVIDER=kwok (the default), kind or minikube
	@.venv/bin/python scripts/run_tests.py molecule -- $(ARGS)

.PHONY: soak
soak: venv-dev ## run the tests of generated cases at full length; takes long
	@.venv/bin/python scripts/run_tests.py soak -- $(ARGS)

.PHONY: lint
lint: venv-dev ## run all linters and type checks
	@scripts/lint.sh

.PHONY: bench
bench: venv-dev ## compare with kube-scheduler: speed, processor time, memory; takes about an hour
	@.venv/bin/python -m bench $(ARGS)

.PHONY: bench-quick
bench-quick: venv-dev ## the same for two sizes and plain pods; takes 8 minutes
	@.venv/bin/python -m bench --quick $(ARGS)

.PHONY: bench-decide
bench-decide: venv-dev ## measure decisions alone: time by number of nodes, memory a pod
	@.venv/bin/python bench/decide.py $(ARGS)

.PHONY: venv-ansible venv-dev
venv-ansible venv-dev: venv-%:
	@scripts/bootstrap.sh $*
