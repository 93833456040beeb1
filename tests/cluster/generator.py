"""Small clusters and pods that ask for a node, made from a number: the same number always makes the same.

Everything is what a user would write, as JSON. Values are few, so that they meet: selectors match something, ports are
taken, zones are crowded. Amounts are a few steps of the nodes' sizes and come in all spellings.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")
Wire = dict[str, Any]

#: What a pod may ask for, by families of constraints. Every pod has requests, and tolerations often.
FAMILIES = ("node", "resources", "ports", "affinity", "spread", "volumes")

SCHEDULER = "turb-kub"
NAMESPACES = ("blue", "green", "red")
#: RuntimeClasses with what they add to a pod; the API server's admission writes it into the pod.
RUNTIMES: dict[str, Wire] = {
    "heavy": {"overhead": {"podFixed": {"cpu": "250m", "memory": "128Mi"}}},
    "on-ssd": {
        "scheduling": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
        }
    },
}
HOSTNAME, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/rack"
TOPOLOGIES = (HOSTNAME, ZONE, ZONE, RACK)
MEBIBYTE = 2**20
DEVICE, HUGE = "example.com/device", "hugepages-2Mi"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PROVISIONER, NO_PROVISIONER = "example.com/provisioner", "kubernetes.io/no-provisioner"
_NOT_READY = {"False": "node.kubernetes.io/not-ready", "Unknown": "node.kubernetes.io/unreachable"}


@dataclass
class Stated:
    """An object with the status that it gets after it was made, and whether it is being deleted then."""

    body: Wire
    status: Wire | None = None
    deleting: bool = False


@dataclass
class Question:
    """A pod that asks for a node, and the families of constraints that it was made with."""

    seed: int
    body: Wire
    families: tuple[str, ...]

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


@dataclass
class Case:
    """One cluster and the pods to ask about."""

    seed: int
    namespaces: dict[str, dict[str, str]]
    nodes: list[Wire] = field(default_factory=list)
    pods: list[Stated] = field(default_factory=list)
    classes: list[Wire] = field(default_factory=list)
    volumes: list[Stated] = field(default_factory=list)
    claims: list[Stated] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)


def generate(seed: int, families: Sequence[str] = FAMILIES, questions: int = 10) -> Case:
    """Make the case of a seed. With other families or another number of questions it is another case."""
    return _Maker(seed, families).case(questions)


class _Maker:
    def __init__(self, seed: int, families: Sequence[str]) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.families = tuple(families)
        self.zones = ("a", "b", "c")[: self.random.randint(1, 3)]
        # Most clusters have few special nodes, some have many.
        self.oddity = self.pick([0.05, 0.15, 0.3, 0.5])
        #: Host ports by the node whose pods claim them.
        self.taken: dict[str, set[tuple[int, str, str]]] = {}
        self.made = Case(seed, {name: self.labels_of_namespace() for name in NAMESPACES})

    # Chance

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, choices: Sequence[T]) -> T:
        return self.random.choice(choices)

    def some(self, choices: Iterable[T], most: int, least: int = 1) -> list[T]:
        pool = list(choices)
        return self.random.sample(pool, min(len(pool), self.random.randint(least, most)))

    def name(self, kind: str, number: int) -> str:
        return f"c{self.seed}-{kind}{number}"

    # The cluster

    def case(self, questions: int) -> Case:
        made = self.made
        made.nodes = [self.node(number) for number in range(self.pick([1, 2, 3, 4, 5, 6, 7, 8]))]
        if "volumes" in self.families:
            self.storage()
        made.pods = [self.placed_pod(number) for number in range(self.random.randint(0, 3 * len(made.nodes)))]
        made.questions = [self.question(number) for number in range(questions)]
        return made

    def labels_of_namespace(self) -> dict[str, str]:
        labels = {"team": self.pick(["x", "y"])}
        return labels | {"env": self.pick(["prod", "dev"])} if self.chance(0.7) else labels

    def node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.made.nodes]

    def node(self, number: int) -> Wire:
        name = self.name("n", number)
        labels = {
            HOSTNAME: (0.97, [name]),
            ZONE: (0.92, self.zones),
            RACK: (0.5, ["r1", "r2"]),
            "disk": (0.7, ["ssd", "hdd"]),
            "cores": (0.8, ["2", "4", "8", "16", "08", "4.5", "many", "9223372036854775807", "9223372036854775808"]),
        }
        ready = "True"
        taints = self.taints() if self.chance(self.oddity) else []
        unschedulable = self.chance(self.oddity / 4)
        if unschedulable and self.chance(0.5):
            taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
        if self.chance(self.oddity / 4):
            # The condition with the taint, as the node controller leaves them: see docs/differences.md.
            ready = self.pick(["False", "Unknown"])
            effects = self.pick([["NoSchedule"], ["NoSchedule", "NoExecute"]])
            taints += [{"key": _NOT_READY[ready], "effect": effect} for effect in effects]
        allocatable = {
            "cpu": self.cpu(self.pick([500, 1000, 2000, 4000, 8000])),
            "memory": self.memory(self.pick([512, 1024, 2048, 3072, 4096])),
            "pods": self.pick(["1", "2", "3", "5", "7"] + ["110"] * 6),
        }
        if self.chance(0.85):
            allocatable["ephemeral-storage"] = self.memory(self.pick([1024, 4096]))
        if self.chance(0.4):
            allocatable[DEVICE] = self.pick(["0", "1", "2"])
        if self.chance(0.4):
            allocatable[HUGE] = self.pick(["0", "64Mi", "128Mi"])
        return {
            "metadata": {
                "name": name,
                "labels": {key: self.pick(values) for key, (share, values) in labels.items() if self.chance(share)},
            },
            "spec": {"taints": taints, "unschedulable": unschedulable},
            "status": {
                "capacity": allocatable,
                "allocatable": allocatable,
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }

    def taints(self) -> list[Wire]:
        pairs = self.some([(key, effect) for key in ("dedicated", "gpu") for effect in self.effects()], 2)
        return [{"key": key, "effect": effect, "value": self.pick(["a", "b", ""])} for key, effect in pairs]

    @staticmethod
    def effects() -> tuple[str, ...]:
        return ("NoSchedule", "NoExecute", "PreferNoSchedule")

    # Amounts

    def cpu(self, milli: int) -> str:
        return self.pick([f"{milli}m", f"{milli}m", _decimal(Fraction(milli, 1000)), f"{milli * 1000}u"])

    def memory(self, mebibytes: int) -> str:
        amount = mebibytes * MEBIBYTE
        spelled = [f"{mebibytes}Mi", str(amount), f"{mebibytes * 1024}Ki", f"{_decimal(Fraction(mebibytes, 1024))}Gi"]
        # A fraction of a byte counts as a whole one, so that what would just fit does not.
        return self.pick(
            [*spelled, *spelled, f"{amount}000m", f"{amount - 1}001m", f"{_decimal(Fraction(amount, 1000))}k"]
        )

    # Pods

    def placed_pod(self, number: int, node: str = "") -> Stated:
        spec = self.containers()
        labels = self.pod_labels()
        if not node:
            node = self.name("gone", 0) if self.chance(0.03) else self.pick(self.node_names())
        if self.chance(0.3) and "ports" in self.families:
            self.ports(spec, self.taken.setdefault(node, set()))
        if self.chance(0.25) and "resources" in self.families:
            self.resources(spec)
        if self.chance(0.2) and "affinity" in self.families:
            self.pod_affinity(spec, labels, anti=0.8, asks=False)
        spec |= {"nodeName": node, "schedulerName": self.pick([SCHEDULER, "default-scheduler", "another"])}
        phase = self.pick(["Running"] * 6 + ["Pending"] * 2 + ["Succeeded", "Failed"])
        status: Wire = {"phase": phase}
        if phase == "Running" and self.chance(0.35):
            status |= self.resized(spec)
        deleting = phase in {"Running", "Pending"} and self.chance(0.12)
        body = {"metadata": self.meta("p", number, labels), "spec": spec}
        return Stated(body, None if phase == "Pending" else status, deleting)

    def resized(self, spec: Wire) -> Wire:
        """A resize in place under way: the amounts allocated and in force differ from the spec's."""
        statuses = []
        for container in spec["containers"]:
            amounts = container.get("resources", {}).get("requests", {})
            if "cpu" not in amounts or "memory" not in amounts:
                return {}
            allocated = {"cpu": self.cpu(self.pick([100, 500, 1000])), "memory": self.memory(self.pick([64, 256, 512]))}
            actual = self.pick([allocated, {"cpu": self.cpu(250), "memory": self.memory(384)}])
            state: Wire = {"name": container["name"], "image": "x", "imageID": "", "ready": True, "restartCount": 0}
            state |= {"allocatedResources": allocated, "resources": {"requests": actual}}
            statuses.append(state)
        found: Wire = {"containerStatuses": statuses}
        if self.chance(0.6):
            reason = self.pick(["Deferred", "Infeasible"])
            found["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        return found

    def question(self, number: int) -> Question:
        families = self.some(self.families, self.pick([1, 2, 2, 3]))
        spec = self.containers(large=0.35 if "resources" in families else 0)
        labels = self.pod_labels()
        spec |= {"schedulerName": SCHEDULER, "tolerations": self.tolerations()}
        makers: dict[str, Callable[[], None]] = {
            "node": lambda: self.node_constraints(spec),
            "resources": lambda: self.resources(spec),
            "ports": lambda: self.ports(spec, set()),
            "affinity": lambda: self.pod_affinity(spec, labels, anti=0.5, asks=True),
            "spread": lambda: self.spread(spec),
        }
        meta = self.meta("q", number, labels)
        for family, make in makers.items():
            if family in families:
                make()
        if "volumes" in families:
            self.pod_volumes(spec, meta)
        return Question(self.seed, {"metadata": meta, "spec": spec}, tuple(sorted(families)))

    def meta(self, kind: str, number: int, labels: dict[str, str]) -> Wire:
        return {"name": self.name(kind, number), "namespace": self.pick(NAMESPACES), "labels": labels}

    def pod_labels(self) -> dict[str, str]:
        labels = {"app": (0.95, ["web", "db"]), "tier": (0.7, ["front", "back"]), "version": (0.8, ["v1", "v2"])}
        return {key: self.pick(values) for key, (share, values) in labels.items() if self.chance(share)}

    def containers(self, large: float = 0.0) -> Wire:
        spec: Wire = {
            "terminationGracePeriodSeconds": 30,
            "containers": [self.container(f"main{number}", large) for number in range(self.pick([1, 1, 1, 2]))],
        }
        before = []
        if self.chance(0.2):
            before.append(self.container("init", large))
        if self.chance(0.2):
            before.append(self.container("sidecar", large) | {"restartPolicy": "Always"})
        if before:
            self.random.shuffle(before)
            spec["initContainers"] = before
        return spec

    def container(self, name: str, large: float = 0.0) -> Wire:
        made: Wire = {"name": name, "image": "x"}
        requests = {}
        if self.chance(0.7):
            requests["cpu"] = self.cpu(self.pick([500, 1000, 2000] if self.chance(large) else [0, 50, 100, 250]))
        if self.chance(0.7):
            requests["memory"] = self.memory(self.pick([512, 1024, 2048] if self.chance(large) else [32, 64, 128]))
        if self.chance(0.1):
            requests["ephemeral-storage"] = self.memory(self.pick([128, 1024]))
        return made | {"resources": {"requests": requests}} if requests else made

    def resources(self, spec: Wire) -> None:
        """Extended resources, huge pages, requests of the whole pod, overhead."""
        first = spec["containers"][0]
        asked = first.setdefault("resources", {}).setdefault("requests", {})
        kind = self.random.random()
        if kind < 0.2:
            amount = self.pick(["1", "1", "2"])
            asked[DEVICE] = amount
            first["resources"].setdefault("limits", {})[DEVICE] = amount
        elif kind < 0.35:
            asked.setdefault("cpu", "10m")
            asked[HUGE] = self.pick(["64Mi", "128Mi"])
            first["resources"].setdefault("limits", {})[HUGE] = asked[HUGE]
        elif kind < 0.6:
            # At least what the containers ask together, else the API server refuses it.
            spec["resources"] = {"requests": {"cpu": self.cpu(8000) if self.chance(0.1) else self.cpu(6000)}}
            if self.chance(0.8):
                for container in (*spec["containers"], *spec.get("initContainers", ())):
                    container.pop("resources", None)
                amounts = {"cpu": self.cpu(self.pick([250, 500, 1000])), "memory": self.memory(self.pick([256, 512]))}
                spec["resources"] = {"requests": dict(self.some(amounts.items(), 2))}
        elif kind < 0.75:
            # Admission refuses a pod whose selector the class contradicts.
            spec["runtimeClassName"] = "heavy" if "disk" in spec.get("nodeSelector", {}) else self.pick(list(RUNTIMES))

    def ports(self, spec: Wire, used: set[tuple[int, str, str]]) -> None:
        """Claim host ports, none that is used: in one pod that is refused, for a node see docs/differences.md."""
        for container in self.some([*spec["containers"], *spec.get("initContainers", ())], 2):
            container["ports"] = []
            for _ in range(self.random.randint(1, 2)):
                port: Wire = {"containerPort": 80, "hostPort": self.pick([8080, 8080, 8081])}
                if self.chance(0.4):
                    port["protocol"] = self.pick(["TCP", "UDP", "SCTP"])
                if self.chance(0.5):
                    port["hostIP"] = self.pick(["0.0.0.0", "127.0.0.1", "10.0.0.1", "::", "::1"])
                key = port["hostPort"], port.get("protocol", "TCP"), port.get("hostIP", "0.0.0.0")
                if key not in used:
                    used.add(key)
                    container["ports"].append(port)
        if self.chance(0.15):
            spec["hostNetwork"] = True
            for container in (*spec["containers"], *spec.get("initContainers", ())):
                for port in container.get("ports", ()):
                    port["containerPort"] = port["hostPort"]

    # Constraints on nodes

    def tolerations(self) -> list[Wire]:
        if self.chance(0.35):
            return []
        if self.chance(0.1):
            return [{"operator": "Exists"}]
        keys = ["dedicated", "gpu", "node.kubernetes.io/unschedulable", *_NOT_READY.values()]
        found = []
        for key in self.some(keys, 4):
            one: Wire = {"key": key}
            if self.chance(0.6):
                one["operator"] = "Exists"
            else:
                one |= {"value": self.pick(["a", "b", ""])} | ({"operator": "Equal"} if self.chance(0.5) else {})
            if self.chance(0.6):
                one["effect"] = self.pick(["NoSchedule", "NoSchedule", "NoExecute"])
            found.append(one)
        return found

    def node_constraints(self, spec: Wire) -> None:
        if self.chance(0.35):
            spec["nodeSelector"] = self.pick([{"disk": "ssd"}, {ZONE: "a"}, {RACK: "r1"}, {"disk": ""}])
        if self.chance(0.75):
            terms = [self.node_term() for _ in range(self.random.randint(1, 3))]
            spec.setdefault("affinity", {})["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}
            if self.chance(0.1):
                spec["affinity"]["nodeAffinity"][PREFERRED] = [{"weight": 7, "preference": self.node_term()}]

    def node_term(self) -> Wire:
        if self.chance(0.04):
            return {}
        term: Wire = {}
        if self.chance(0.85):
            term["matchExpressions"] = [self.node_expression() for _ in range(self.pick([1, 1, 2]))]
        if self.chance(0.2) or not term:
            names = [self.pick([*self.node_names(), "no-such-node"])]
            operator = self.pick(["In", "NotIn"])
            term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": names}]
        return term

    def node_expression(self) -> Wire:
        operator = self.pick(["In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
        if operator in {"Gt", "Lt"}:
            bound = self.pick(["1", "4", "7", "8", "010", "0x4", "many", "9223372036854775806", "9223372036854775808"])
            return {"key": self.pick(["cores", "cores", "cores", "disk"]), "operator": operator, "values": [bound]}
        values = {
            "disk": ["ssd", "hdd", "tape"],
            ZONE: ["a", "b", "c"],
            RACK: ["r1", "r2"],
            "cores": ["4", "08", "many"],
        }
        key = self.pick(list(values))
        found: Wire = {"key": key, "operator": operator}
        return found | {"values": self.some(values[key], 2)} if operator in {"In", "NotIn"} else found

    # Constraints on other pods

    def selector(self) -> Wire | None:
        kind = self.random.random()
        if kind < 0.5:
            return {"matchLabels": {"app": self.pick(["web", "db"])}}
        if kind < 0.6:
            return {"matchLabels": {"app": self.pick(["web", "db"]), "tier": self.pick(["front", "back"])}}
        if kind < 0.9:
            operator = self.pick(["In", "NotIn", "Exists", "DoesNotExist"])
            one: Wire = {"key": self.pick(["app", "tier"]), "operator": operator}
            if operator in {"In", "NotIn"}:
                values = {"app": ["web", "db", "none"], "tier": ["front", "back"]}
                one["values"] = self.some(values[one["key"]], 2)
            return {"matchExpressions": [one]}
        return {} if kind < 0.96 else None

    def pod_term(self, asks: bool) -> Wire:
        term: Wire = {"topologyKey": self.pick(TOPOLOGIES)}
        selector = self.selector()
        if selector is not None:
            term["labelSelector"] = selector
            if self.chance(0.15):
                term["matchLabelKeys"] = ["version"]
            # A key may not stand in the selector too.
            if self.chance(0.15) and "tier" not in str(selector):
                term["mismatchLabelKeys"] = ["tier"]
        if self.chance(0.3):
            term["namespaces"] = self.some([*NAMESPACES, "nowhere"], 2)
        if self.chance(0.35):
            # Of a pod that asks none that holds of no labels at all: see docs/differences.md.
            operators: list[Wire] = [{"operator": "Exists"}, {"operator": "In", "values": ["dev"]}]
            if not asks:
                operators += [{"operator": "DoesNotExist"}, {"operator": "NotIn", "values": ["prod"]}]
            term["namespaceSelector"] = self.pick(
                [
                    {},
                    {"matchLabels": {"team": "x"}},
                    {"matchLabels": {"env": "prod"}},
                    {"matchExpressions": [{"key": "env", **self.pick(operators)}]},
                ]
            )
        return term

    def pod_affinity(self, spec: Wire, labels: dict[str, str], anti: float, asks: bool) -> None:
        found = spec.setdefault("affinity", {})
        if self.chance(anti):
            found["podAntiAffinity"] = {REQUIRED: [self.pod_term(asks) for _ in range(self.pick([1, 1, 2]))]}
        else:
            terms = [self.pod_term(asks) for _ in range(self.pick([1, 1, 1, 2]))]
            if self.chance(0.3) and "app" in labels:
                # The first of its kind, which may go anywhere as it matches its own term.
                terms[0] = {"topologyKey": self.pick(TOPOLOGIES), "labelSelector": {"matchLabels": dict(labels)}}
            found["podAffinity"] = {REQUIRED: terms}

    def spread(self, spec: Wire) -> None:
        made: dict[tuple[str, str], Wire] = {}
        for _ in range(self.pick([1, 1, 2])):
            one: Wire = {
                "maxSkew": self.pick([1, 1, 2, 3]),
                "topologyKey": self.pick(TOPOLOGIES),
                "whenUnsatisfiable": "DoNotSchedule" if self.chance(0.9) else "ScheduleAnyway",
            }
            selector = self.selector()
            if selector is not None:
                one["labelSelector"] = selector
                if self.chance(0.2):
                    one["matchLabelKeys"] = ["version"]
            if self.chance(0.3) and one["whenUnsatisfiable"] == "DoNotSchedule":
                one["minDomains"] = self.pick([1, 2, 3, 4])
            for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
                if self.chance(0.5):
                    one[policy] = self.pick(["Honor", "Ignore"])
            made[one["topologyKey"], one["whenUnsatisfiable"]] = one
        spec["topologySpreadConstraints"] = list(made.values())

    # Volumes

    def storage(self) -> None:
        """Classes, and volumes that wait for a claim."""
        zones = [{"matchLabelExpressions": [{"key": ZONE, "values": [self.pick("ab")]}]}]
        classes: list[tuple[str, Wire]] = [
            ("local", {"provisioner": NO_PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"}),
            ("late", {"provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"}),
            (
                "zonal",
                {
                    "provisioner": PROVISIONER,
                    "volumeBindingMode": "WaitForFirstConsumer",
                    "allowedTopologies": zones,
                },
            ),
            ("early", {"provisioner": PROVISIONER, "volumeBindingMode": "Immediate"}),
        ]
        self.made.classes = [{"metadata": {"name": self.class_name(name)}, **body} for name, body in classes]
        for _ in range(self.random.randint(1, 7)):
            volume = self.volume(self.pick(["local", "local", "local", "late"]))
            volume.status = {"phase": self.pick(["Available"] * 5 + ["Released"])}
            self.made.volumes.append(volume)

    def class_name(self, name: str) -> str:
        return f"c{self.seed}-{name}"

    def volume(self, class_name: str) -> Stated:
        spec: Wire = {
            "capacity": {"storage": self.pick(["1Gi", "2Gi", "3Gi"])},
            "accessModes": self.pick([["ReadWriteOnce"], ["ReadWriteOnce"], ["ReadWriteOnce", "ReadWriteMany"]]),
            "storageClassName": self.class_name(class_name),
            "nfs": {"server": "x", "path": "/"},
        }
        if self.chance(0.1):
            spec["volumeMode"] = "Block"
            spec["csi"] = {"driver": "example.com", "volumeHandle": "x"}
            del spec["nfs"]
        labels = {}
        kind = self.random.random()
        if kind < 0.6:
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [self.volume_term()]}}
        elif kind < 0.85:
            key = self.pick([ZONE, ZONE, "failure-domain.beta.kubernetes.io/zone"])
            labels[key] = self.pick(["a", "b", "a__b", "c"])
        if self.chance(0.3):
            labels["speed"] = self.pick(["fast", "slow"])
        name = self.name("v", len(self.made.volumes))
        return Stated({"metadata": {"name": name, "labels": labels}, "spec": spec})

    def volume_term(self) -> Wire:
        kind = self.random.random()
        if kind < 0.5:
            return {
                "matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": self.some(self.node_names(), 3)}]
            }
        if kind < 0.85:
            return {"matchExpressions": [{"key": ZONE, "operator": "In", "values": self.some(["a", "b", "c"], 2)}]}
        return {"matchExpressions": [self.node_expression()]}

    def pod_volumes(self, spec: Wire, meta: Wire) -> None:
        volumes = []
        for number in range(self.pick([1, 1, 1, 2])):
            if self.chance(0.02):
                template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
                volumes.append({"name": f"d{number}", "ephemeral": {"volumeClaimTemplate": template}})
                continue
            claim = f"{meta['name']}-{number}"
            self.claim(claim, meta["namespace"])
            volumes.append({"name": f"d{number}", "persistentVolumeClaim": {"claimName": claim}})
        spec["volumes"] = volumes

    def claim(self, name: str, namespace: str) -> None:
        """Make a claim (or leave it missing) and the volume that it is bound to."""
        spec: Wire = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": self.pick(["1Gi", "2Gi"])}},
        }
        meta: Wire = {"name": name, "namespace": namespace, "annotations": {}}
        claim = Stated({"metadata": meta, "spec": spec}, {"phase": "Pending"})
        kind = self.random.random()
        if kind < 0.02:
            return
        if kind < 0.44:
            self.bind(claim)
        elif kind < 0.5:
            self.bind(claim)
            self.one_pod_only(claim)
        elif kind < 0.94:
            spec["storageClassName"] = self.class_name(self.pick(["local", "local", "local", "late", "zonal", "zonal"]))
            if self.chance(0.15):
                spec["selector"] = {"matchLabels": {"speed": "fast"}}
            if self.chance(0.1):
                spec["volumeMode"] = "Block"
            if self.chance(0.1):
                spec["accessModes"] = ["ReadWriteMany"]
            if self.chance(0.1):
                meta["annotations"]["volume.kubernetes.io/selected-node"] = self.pick(self.node_names())
            if self.chance(0.15):
                # A volume that is kept for this claim and is not bound yet.
                volume = self.volume(spec["storageClassName"].rpartition("-")[2])
                volume.body["spec"]["claimRef"] = {"name": name, "namespace": namespace}
                volume.status = {"phase": "Available"}
                self.made.volumes.append(volume)
        elif kind < 0.955:
            spec["storageClassName"] = self.pick([self.class_name("early"), self.class_name("none"), ""])
        elif kind < 0.965:
            self.bind(claim)
            spec["volumeName"] = "no-such-volume"
        elif kind < 0.98:
            self.bind(claim)
            claim.status = {"phase": "Lost"}
        else:
            self.bind(claim)
            meta["finalizers"] = ["example.com/hold"]
            claim.deleting = True
        self.made.claims.append(claim)

    def one_pod_only(self, claim: Stated) -> None:
        """Let the claim be used by one pod at a time, and mostly have one that uses it."""
        for body in (claim.body, self.made.volumes[-1].body):
            body["spec"]["accessModes"] = ["ReadWriteOncePod"]
        if self.chance(0.75):
            # Not on a node that is not there: it holds nothing for kube-scheduler.
            pod = self.placed_pod(len(self.made.pods), self.pick(self.node_names()))
            meta = claim.body["metadata"]
            pod.body["metadata"]["namespace"] = meta["namespace"]
            source = {"claimName": meta["name"]}
            pod.body["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": source}]
            self.made.pods.append(pod)

    def bind(self, claim: Stated) -> None:
        meta, spec = claim.body["metadata"], claim.body["spec"]
        volume = self.volume(self.pick(["local", "late", "early"]))
        volume.body["spec"]["claimRef"] = {"name": meta["name"], "namespace": meta["namespace"]}
        volume.status = {"phase": "Bound"}
        self.made.volumes.append(volume)
        spec |= {
            "volumeName": volume.body["metadata"]["name"],
            "storageClassName": volume.body["spec"]["storageClassName"],
        }
        if "volumeMode" in volume.body["spec"]:
            spec["volumeMode"] = volume.body["spec"]["volumeMode"]
        meta["annotations"] |= {"pv.kubernetes.io/bind-completed": "yes"}
        claim.status = {"phase": "Bound"}


def _decimal(value: Fraction) -> str:
    """The number in decimals, exactly: the denominators here are products of 2 and 5."""
    return format((Decimal(value.numerator) / value.denominator).normalize(), "f")
