"""The manifests of docs/kubernetes.md are what KEDA takes, and name what `mark scaler` answers."""

from __future__ import annotations

from typing import Any

import jsonschema
import yaml

from mark.serving.grpc.external_scaler import OFFERING
from scripts.docs import commands
from tests.docs.pages import HOUSE, blocks

PAGE = HOUSE / "docs" / "kubernetes.md"


def of(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """An object with no other keys: Kubernetes drops those that it does not know without a word."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT, YES_OR_NO = {"type": "string"}, {"type": "boolean"}
QUANTITY = {"anyOf": [{"type": "integer"}, TEXT]}


def whole(least: int | None = None) -> dict[str, Any]:
    return {"type": "integer"} | ({} if least is None else {"minimum": least})


def one_of(*names: str) -> dict[str, Any]:
    return {"enum": list(names)}


STEP = of({"periodSeconds": whole(), "type": TEXT, "value": whole()}, "periodSeconds", "type", "value")
RULES = of(
    {
        "policies": {"type": "array", "items": STEP},
        "selectPolicy": TEXT,
        "stabilizationWindowSeconds": whole(),
        "tolerance": QUANTITY,
    }
)
SPEC = of(
    {
        "advanced": of(
            {
                "horizontalPodAutoscalerConfig": of(
                    {"behavior": of({"scaleDown": RULES, "scaleUp": RULES}), "name": TEXT}
                ),
                "restoreToOriginalReplicaCount": YES_OR_NO,
                "scalingModifiers": of(
                    {
                        "activationTarget": TEXT,
                        "formula": TEXT,
                        "metricType": one_of("AverageValue", "Value"),
                        "target": TEXT,
                    }
                ),
            }
        ),
        "cooldownPeriod": whole(0),
        "fallback": of(
            {
                "behavior": one_of(
                    "static",
                    "currentReplicas",
                    "currentReplicasIfHigher",
                    "currentReplicasIfLower",
                    "scalingModifiers",
                ),
                "failureThreshold": whole(0),
                "replicas": whole(0),
            },
            "failureThreshold",
            "replicas",
        ),
        "idleReplicaCount": whole(0),
        "initialCooldownPeriod": whole(0),
        "maxReplicaCount": whole(1),
        "minReplicaCount": whole(0),
        "pollingInterval": whole(1),
        "scaleTargetRef": of(
            {"apiVersion": TEXT, "envSourceContainerName": TEXT, "kind": TEXT, "name": TEXT}, "name"
        ),
        "triggers": {
            "type": "array",
            "items": of(
                {
                    "authenticationRef": of(
                        {"kind": one_of("TriggerAuthentication", "ClusterTriggerAuthentication"), "name": TEXT},
                        "name",
                    ),
                    "metadata": {"type": "object", "additionalProperties": TEXT},
                    "metricType": TEXT,
                    "name": TEXT,
                    "type": TEXT,
                    "useCachedMetrics": YES_OR_NO,
                },
                "metadata",
                "type",
            ),
        },
    },
    "scaleTargetRef",
    "triggers",
)
"""The fields of KEDA's config/crd/bases/keda.sh_scaledobjects.yaml (commit 8b4f083c, 2026-08-20)."""
NAMES = of({"name": TEXT, "namespace": TEXT}, "name")
SCALED_OBJECT = of(
    {"apiVersion": one_of("keda.sh/v1alpha1"), "kind": one_of("ScaledObject"), "metadata": NAMES, "spec": SPEC},
    "apiVersion",
    "kind",
    "metadata",
    "spec",
)


def manifests(kind: str = "ScaledObject") -> list[dict[str, Any]]:
    texts = [block.text for block in blocks(PAGE) if block.language == "yaml"]
    return [one for text in texts for one in yaml.safe_load_all(text) if one["kind"] == kind]


def test_manifests_are_what_keda_takes() -> None:
    found = manifests()
    assert len(found) == 2
    for one in found:
        jsonschema.validate(one, SCALED_OBJECT)
        spec = one["spec"]
        assert spec["minReplicaCount"] < spec["maxReplicaCount"]
        # KEDA falls back for metrics of this type alone, which is the one of triggers that name none
        assert all("metricType" not in trigger for trigger in spec["triggers"])


def test_manifests_name_what_the_scaler_answers() -> None:
    (scaler,) = (command for name, command in commands() if name == "mark scaler")
    (port,) = (parameter.default for parameter in scaler.params if parameter.name == "port")
    triggers = [trigger for one in manifests() for trigger in one["spec"]["triggers"]]
    assert {trigger["type"] for trigger in triggers} == {"external", "external-push"}
    assert all(trigger["metadata"]["scalerAddress"].endswith(f":{port}") for trigger in triggers)
    types = [trigger["metadata"][OFFERING] for trigger in triggers]
    assert f"--types {','.join(types)}" in PAGE.read_text()
    assert [one["metadata"]["name"] for one in manifests()] == [
        f"classifier-{kind.replace('.', '-')}" for kind in types
    ]


def test_the_scaler_s_own_pod_is_started_as_its_command_asks_and_reached_where_triggers_look() -> None:
    ((pod,), (service,)) = (manifests(kind) for kind in ("Deployment", "Service"))
    (container,) = pod["spec"]["template"]["spec"]["containers"]
    asked = [*container["command"], *container["args"]]
    (scaler,) = (command for name, command in commands() if name == "mark scaler")
    given = scaler.make_context("scaler", asked[2:]).params
    assert asked[:2] == ["mark", "scaler"]
    assert str(given["state"]).startswith(container["volumeMounts"][0]["mountPath"])
    assert service["spec"]["ports"] == [{"port": given["port"]}]
    where = f"{service['metadata']['name']}.{service['metadata']['namespace']}:{given['port']}"
    triggers = [trigger for one in manifests() for trigger in one["spec"]["triggers"]]
    assert {trigger["metadata"]["scalerAddress"] for trigger in triggers} == {where}
