"""turb-kub and kube-scheduler are asked the same on generated clusters: which nodes may take this pod, if none, why?

A disagreement is a bug here, unless a line of docs/differences.md says why ours is right; what stands there the
generator leaves out. A failure names the seed, from which `generate` makes the same case again.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
from turb_kub.decision.explain import Explanation

from tests.api.conftest import Admin
from tests.cluster.control_plane import ControlPlane
from tests.cluster.generator import FAMILIES, Case, Question, generate
from tests.cluster.oracle import Answer, Oracle, Stage, feasible, oracle, our_answers

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

#: Clusters in a soak and without, of ten pods each; and how many are one test.
ALL, FEW, BATCH = 500, 50, 25
#: Disagreements that are told with all objects.
TOLD = 3


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first_seed" in metafunc.fixturenames:
        count = ALL if metafunc.config.getoption("soak") else FEW
        metafunc.parametrize("first_seed", range(0, count, BATCH))


@pytest.fixture(scope="module")
def kube_scheduler(bare: ControlPlane) -> Iterator[Oracle]:
    with oracle(bare) as found:
        yield found


@pytest.fixture
async def stage(admin: Admin) -> AsyncIterator[Stage]:
    found = Stage(admin)
    await found.prepare()
    yield found
    await found.clear()


async def test_a_pod_may_go_where_kube_scheduler_would_put_it_and_nowhere_else(first_seed, kube_scheduler, stage):
    disagreements: list[str] = []
    outcomes: Counter[tuple[str, str]] = Counter()
    for seed in range(first_seed, first_seed + BATCH):
        case = generate(seed)
        await stage.write(case)
        theirs = await kube_scheduler.ask(stage, [question.body for question in case.questions])
        ours = await our_answers(stage.admin.client, list(theirs))
        for question in case.questions:
            expected, answer = theirs[question.name], ours[question.name]
            if not agree(question, expected, answer):
                whole = case if len(disagreements) < TOLD else None
                disagreements.append(told(question, expected, answer, whole))
            for kind in ("every pod", *question.families):
                outcomes[kind, outcome(expected.nodes, case)] += 1
        await stage.clear()
    assert not disagreements, "\n\n".join(disagreements)
    check_spread(outcomes)


def agree(question: Question, expected: Answer, answer: Explanation) -> bool:
    decision = answer.decision
    if expected.nodes:
        said_well = decision.node in expected.nodes
    else:
        # Of a pod that names its node, kube-scheduler counts all other nodes as one reason of its own.
        said_well = decision.node is None and (
            "matchFields" in str(question.body) or decision.message == expected.message
        )
    return said_well and decision.feasible == len(expected.nodes) and feasible(answer) == expected.nodes


def outcome(nodes: frozenset[str], case: Case) -> str:
    if not nodes:
        return "none"
    return "some" if len(nodes) < len(case.nodes) else "all"


def check_spread(outcomes: Counter[tuple[str, str]]) -> None:
    """Fail where the answers are so alike that agreeing says little."""
    for kind in ("every pod", *FAMILIES):
        counts = {name: outcomes[kind, name] for name in ("none", "some", "all")}
        asked = sum(counts.values())
        assert asked >= BATCH, (kind, counts)
        assert 0.1 < counts["none"] / asked < 0.75, (kind, counts)
        assert counts["some"] / asked > 0.2, (kind, counts)


def told(question: Question, expected: Answer, answer: Explanation, case: Case | None) -> str:
    """A disagreement for people; with the case all its objects as JSON."""
    lines = [
        f"{question.name} of seed {question.seed} ({', '.join(question.families)}): turb-kub {sorted(feasible(answer))}"
        f" and takes {answer.decision.node}, kube-scheduler {sorted(expected.nodes)}",
        f"  turb-kub: {answer.decision.message}",
        f"  kube-scheduler: {expected.message}",
        *(f"    {node.name}: {'; '.join(node.refusals) or 'fits'}" for node in answer.nodes),
        f"  {json.dumps(question.body)}",
    ]
    if case is not None:
        lines += [f"  namespaces: {json.dumps(case.namespaces)}"]
        lines += [f"  node: {json.dumps(node)}" for node in case.nodes]
        for kind, objects in (("pod", case.pods), ("claim", case.claims), ("volume", case.volumes)):
            lines += [f"  {kind}: {json.dumps(vars(one))}" for one in objects]
    return "\n".join(lines)
