"""deploy/kubernetes: manifests fit the schemas, unknown keys forbidden, and plmix understands every command."""

from __future__ import annotations

import copy
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from plmix_dist.cli import plmix

yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")
FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
DOCUMENTS = {path.name: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yaml"))}
OPERATOR = [name for name, document in DOCUMENTS.items() if "dask.org" in document["apiVersion"]]
CORE = [name for name in DOCUMENTS if name not in OPERATOR]
CRDS = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds/"
TYPO = "readOnlyRootFileSystem"


def closed(schema: Any) -> Any:
    """A schema in which no object may have keys that it does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict) and "additionalProperties" not in made:
        made["additionalProperties"] = False
    return made


@pytest.fixture(scope="module")
def crds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The schemas of the operator's kinds, from its wheel."""
    folder = tmp_path_factory.mktemp("operator")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    got = subprocess.run([*command, "dask-kubernetes"], capture_output=True, text=True, check=False)
    if got.returncode:
        pytest.skip(f"the wheel of dask-kubernetes is not to be had: {got.stderr[-200:]}")
    schemas = {}
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        for name in wheel.namelist():
            if name.startswith(CRDS) and name.endswith(".yaml"):
                spec = yaml.safe_load(wheel.read(name))["spec"]
                schema = spec["versions"][0]["schema"]["openAPIV3Schema"]
                schemas[spec["names"]["kind"]] = jsonschema.Draft7Validator(closed(schema))
    return schemas


def errors(document: dict[str, Any], validator: Any) -> list[str]:
    """What is wrong with a manifest; the API server itself looks after kind and metadata."""
    inner = {key: value for key, value in document.items() if key not in ("apiVersion", "kind", "metadata")}
    return [error.message for error in validator.iter_errors(inner)]


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATOR)
def test_operator_kinds__fit_their_crds(name: str, crds: dict[str, Any]) -> None:
    document = DOCUMENTS[name]
    validator = crds[document["kind"]]
    assert errors(document, validator) == []
    # A key with a typing error, at any depth, is found: it would be dropped without a word by a cluster.
    for places in (pods, containers):
        for number in range(len(places(document))):
            wrong = copy.deepcopy(document)
            places(wrong)[number]["securityContext"][TYPO] = True
            assert any(TYPO in error for error in errors(wrong, validator))


@pytest.mark.parametrize("name", CORE)
def test_core_kinds__fit_the_schemas_of_kubernetes(name: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="not installed: pip install --group deploy")
    document = DOCUMENTS[name]
    kubernetes_validate.validate(document, "1.34", strict=True)
    wrong = copy.deepcopy(document)
    wrong["spec"][TYPO] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.34", strict=True)


def pods(value: Any) -> list[dict[str, Any]]:
    """All pod specs in a manifest: whatever has containers."""
    if isinstance(value, list):
        return [pod for each in value for pod in pods(each)]
    if not isinstance(value, dict):
        return []
    inner = [pod for each in value.values() for pod in pods(each)]
    return [value, *inner] if "containers" in value else inner


def containers(document: Any) -> list[dict[str, Any]]:
    return [container for pod in pods(document) for container in pod["containers"]]


def test_pods__no_rights_and_read_only() -> None:
    assert {name: len(containers(document)) for name, document in DOCUMENTS.items()} == {
        "cronjob.yaml": 1,
        "daskcluster.yaml": 2,
        "daskjob.yaml": 3,
        "networkpolicy.yaml": 0,
        "storage.yaml": 0,
    }
    for document in DOCUMENTS.values():
        for pod in pods(document):
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["automountServiceAccountToken"] is False
            for container in pod["containers"]:
                assert container["securityContext"]["readOnlyRootFilesystem"] is True
                assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
                assert container["resources"]["limits"]["memory"]
                assert {mount["name"] for mount in container["volumeMounts"]} <= {
                    volume["name"] for volume in pod["volumes"]
                }


def test_commands__understood_by_plmix(tmp_path: Path) -> None:
    verbs = []
    for document in DOCUMENTS.values():
        for container in containers(document):
            # Certificates must exist to be accepted.
            arguments = [word.replace("/etc/plmix/tls", str(tmp_path)) for word in container["args"]]
            for name in ("ca.pem", "cert.pem", "key.pem"):
                (tmp_path / name).touch()
                assert any(word.endswith(str(tmp_path / name)) for word in arguments)
            with plmix.make_context("plmix", list(arguments)) as context:
                verb, command, rest = plmix.resolve_command(context, arguments)
                assert command is not None
                command.make_context(verb, rest, parent=context)
            verbs.append(verb)
    assert sorted(verbs) == ["run", "run", "scheduler", "scheduler", "worker", "worker"]


def test_names__jobs_and_workers_ask_for_the_scheduler_that_is_there() -> None:
    made = {DOCUMENTS[name]["metadata"]["name"] for name in OPERATOR}
    asked = {
        word.rpartition("tls://")[2]
        for document in DOCUMENTS.values()
        for container in containers(document)
        for word in container["args"]
        if "tls://" in word
    }
    assert asked == {f"{name}-scheduler:8786" for name in made}
