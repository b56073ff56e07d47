"""Publishing to a Hub on this machine: what goes there, what does not, what users then load."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from hub_emulator import HubEmulator, Repo
from hypothesis import given
from hypothesis import strategies as st
from small_release import Ended, Running, Warm, small_release

from feda4fair import Iid, federate, write
from feda4fair.card import render_again
from feda4fair.errors import Feda4FairError, PublishError
from feda4fair.manifest import read_manifest, write_manifest
from feda4fair.merge import read_card
from feda4fair.release import Consent, check_release, check_rights, is_safe_path
from feda4fair_celeba import DATASET as CELEBA
from feda4fair_dutch import DATASET as DUTCH

REPO = "feda4fair/acs"
USERS = {
    "hf_test": {"name": "tester", "orgs": ["feda4fair"]},
    "hf_reader": {"name": "reader", "orgs": ["feda4fair"], "role": "read"},
    "hf_stranger": {"name": "stranger", "orgs": ["elsewhere"]},
    "hf_guest": {"name": "guest", "orgs": ["feda4fair"], "role_in_org": "read"},
    "hf_narrow": {
        "name": "narrow",
        "orgs": ["feda4fair"],
        "scoped": [
            {"entity": {"type": "org", "name": "elsewhere"}, "permissions": ["repo.write"]}
        ],
    },
    "hf_scoped": {
        "name": "scoped",
        "orgs": ["feda4fair"],
        "scoped": [
            {"entity": {"type": "org", "name": "feda4fair"}, "permissions": ["repo.write"]}
        ],
    },
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders acs, other (another config of acs), dutch, celeba and index (of celeba)."""
    folder = tmp_path_factory.mktemp("built")
    small_release(folder / "acs", ("value-silo", "attribute-silo"), shard_bytes=10_000)
    small_release(folder / "dutch", ("value-silo",), dataset=DUTCH)
    small_release(folder / "celeba", ("value-silo",), dataset=CELEBA)
    small_release(folder / "index", ("value-silo",), dataset=CELEBA, form="index")
    return folder


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HubEmulator, Warm]]:
    folder = tmp_path_factory.mktemp("hub")
    with HubEmulator(USERS) as hub:
        warm = Warm(hub.env(folder / "home"), folder)
        yield hub, warm
        warm.close()


@pytest.fixture
def warm5(hub: HubEmulator, tmp_path: Path) -> Iterator[Warm]:
    """The program with datasets 5, which brings another version of the Hub's library."""
    python = os.environ.get("FEDA4FAIR_PYTHON_DATASETS5", "")
    if not python:
        pytest.skip("FEDA4FAIR_PYTHON_DATASETS5 names no Python; see `make compat-venvs`")
    warm = Warm(hub.env(tmp_path / "home"), tmp_path, python)
    yield warm
    warm.close()


@pytest.fixture
def hub(shared_hub: tuple[HubEmulator, Warm]) -> HubEmulator:
    """The Hub, empty."""
    hub, _ = shared_hub
    hub.repos.clear()
    hub.blobs.clear()
    hub.requests.clear()
    return hub


@pytest.fixture
def warm(shared_hub: tuple[HubEmulator, Warm]) -> Warm:
    if not hasattr(os, "fork"):
        pytest.skip("processes are forked")
    return shared_hub[1]


def publish(warm: Warm, folder: Path, *more: str, repo: str = REPO, **how: str) -> Ended:
    dataset = "celeba" if folder.name == "index" else folder.name
    return warm.run("publish", dataset, "--build", folder, "--repo-id", repo, *more, **how)


def done(ended: Ended) -> Ended:
    assert ended.code == 0, ended.out + ended.err
    return ended


def refused(ended: Ended, *words: str) -> None:
    assert ended.code == 1, ended.out
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert all(word in ended.err for word in words), ended.err


def run(warm: Warm, code: str, **how: str) -> Ended:
    return warm.run("-c", code, **how)


def loading(built: Path) -> str:
    """Return a program that loads what was published in every way, and compares."""
    return f"""
from datasets import load_dataset
for name, config, folder in (
    ("acs", "value-silo", "acs"), ("acs", "attribute-silo", "acs"),
    ("dutch", "value-silo", "dutch"), ("celeba", "value-silo", "index"),
):
    repo = "feda4fair/" + name
    hub = load_dataset(repo, config)
    here = load_dataset({str(built)!r} + "/" + folder, config)
    assert list(hub) == list(here) == ["train", "validation", "test"]
    for split in hub:
        assert hub[split].features == here[split].features
        assert hub[split].data.table.equals(here[split].data.table), (name, config, split)
    stream = load_dataset(repo, config, split="test", streaming=True)
    assert list(stream) == list(here["test"])
    assert load_dataset(repo, config, revision="v1.0.0")["test"].to_list() == list(here["test"])
    client = here["test"][0]["client_id"]
    some = load_dataset(repo, config, split="test", filters=[("client_id", "==", client)])
    assert set(some["client_id"]) == {{client}} and 0 < len(some) < len(here["test"])
"""


def test_three_datasets_are_published_and_loaded(
    hub: HubEmulator, warm: Warm, built: Path
) -> None:
    done(publish(warm, built / "acs"))
    done(publish(warm, built / "dutch", "--accept-terms", repo="feda4fair/dutch"))
    done(publish(warm, built / "index", repo="feda4fair/celeba"))
    done(run(warm, loading(built)))
    assert not any(path.endswith((".py", "dataset_infos.json")) for path in hub.tree(REPO))


@pytest.mark.slow
def test_datasets_5_publishes_and_loads_the_same(
    hub: HubEmulator, warm5: Warm, built: Path
) -> None:
    hub.fault("POST", "/commit/", status=412, times=1)
    hub.fault("PUT", "/_lfs/", cut=True, times=1)
    done(publish(warm5, built / "acs"))
    done(publish(warm5, built / "dutch", "--accept-terms", repo="feda4fair/dutch"))
    done(publish(warm5, built / "index", repo="feda4fair/celeba"))
    assert "unchanged" in done(publish(warm5, built / "acs")).out
    assert hub.history(REPO) == ["acs v1.0.0", "initial commit"]
    done(run(warm5, loading(built)))
    done(run(warm5, f"assert len(load_client({REPO!r}, 'value-silo', 'WY'))"))
    done(warm5.run("verify", REPO))


def test_the_same_release_makes_no_commit(hub: HubEmulator, warm: Warm, built: Path) -> None:
    done(publish(warm, built / "acs"))
    hub.requests.clear()
    again = done(publish(warm, built / "acs"))
    assert "unchanged" in again.out
    assert {method for method, _, _ in hub.requests} == {"GET"}
    assert hub.history(REPO) == ["acs v1.0.0", "initial commit"]


def test_a_changed_config_is_one_commit_and_hand_edits_survive(
    hub: HubEmulator, warm: Warm, built: Path, tmp_path: Path
) -> None:
    done(publish(warm, built / "acs"))
    before = hub.tree(REPO)
    assert "data/value-silo/train-00001-of-00002.parquet" in before
    card = (built / "acs" / "README.md").read_text("utf-8")
    edited = card.replace("license:", "my_key: mine\nlicense:", 1) + "\n## By hand\n\nMy words.\n"
    hub.write(REPO, "README.md", edited.encode())
    hub.write(REPO, "NOTES.md", b"kept")
    hub.write(REPO, "acs.py", b"print('loading script')")

    same = done(publish(warm, built / "acs"))
    assert "delete   acs.py" in same.out
    assert "acs.py" not in hub.tree(REPO)
    assert hub.blobs[hub.tree(REPO)["README.md"]].decode().count("My words.") == 1

    new = small_release(
        tmp_path / "acs", ("value-silo", "attribute-silo"), version="1.1.0", shard_bytes=10**6
    )
    ended = done(publish(warm, new))
    after = hub.tree(REPO)
    assert hub.history(REPO)[0] == "acs v1.1.0"
    assert "data/value-silo/train-00000-of-00001.parquet" in after
    assert not any("-of-00002" in path for path in after), "stale shards"
    assert after["NOTES.md"] == before.get("NOTES.md", after["NOTES.md"])
    assert after[".gitattributes"] == before[".gitattributes"]
    text = hub.blobs[after["README.md"]].decode()
    assert "## By hand\n\nMy words." in text
    assert "my_key: mine" in text
    assert "foreign  NOTES.md" in ended.out
    done(warm.run("verify", REPO, "--revision", "v1.1.0"))


def test_a_tag_on_another_content_stops_before_the_commit(
    hub: HubEmulator, warm: Warm, built: Path, tmp_path: Path
) -> None:
    done(publish(warm, built / "acs"))
    changed = small_release(tmp_path / "acs", ("value-silo", "attribute-silo"), seed=1)
    tree = hub.tree(REPO)
    refused(publish(warm, changed), "v1.0.0", "another content")
    assert hub.tree(REPO) == tree
    done(publish(warm, changed, "--tag", "v1.0.1"))
    assert set(hub.dataset(REPO).refs) == {
        "refs/heads/main",
        "refs/tags/v1.0.0",
        "refs/tags/v1.0.1",
    }
    refused(publish(warm, changed, "--tag", "latest"), "vX.Y.Z")


def test_some_configs_are_completed_with_those_of_the_hub(
    hub: HubEmulator, warm: Warm, built: Path, tmp_path: Path
) -> None:
    done(publish(warm, built / "acs"))
    hub.received.clear()
    part = small_release(tmp_path / "acs", ("value-silo",), version="1.1.0", seed=1)
    before = {path: path.read_bytes() for path in part.rglob("*") if path.is_file()}
    planned = done(publish(warm, part, "--dry-run"))
    assert "change   data/value-silo/" in planned.out
    assert "data/attribute-silo/" not in planned.out
    done(publish(warm, part))
    assert {path: path.read_bytes() for path in part.rglob("*") if path.is_file()} == before
    tree = hub.tree(REPO)
    names = ["value-silo", "attribute-silo"]
    croissant = json.loads(hub.blobs[tree["croissant.json"]])
    assert {each["@id"].split("/")[0] for each in croissant["recordSet"]} == set(names)
    manifest = json.loads(hub.blobs[tree["manifest.json"]])
    assert set(manifest["configs"]) == set(names)
    assert manifest["version"] == "1.1.0"
    assert set(hub.received) <= {hashlib.sha256(data).hexdigest() for data in before.values()}
    done(warm.run("verify", REPO, "--revision", "v1.1.0"))
    done(run(warm, f"import datasets; datasets.load_dataset({REPO!r}, 'attribute-silo')"))
    assert "unchanged" in done(publish(warm, part)).out


@pytest.mark.slow
def test_a_completed_release_is_that_of_a_whole_build(
    hub: HubEmulator, warm: Warm, built: Path, tmp_path: Path
) -> None:
    done(publish(warm, built / "acs"))
    both = ("value-silo", "attribute-silo")
    whole = small_release(tmp_path / "acs", both, version="1.1.0", shard_bytes=10_000)
    part = small_release(
        tmp_path / "part" / "acs", ("value-silo",), version="1.1.0", shard_bytes=10_000
    )
    done(publish(warm, part))
    tree = hub.tree(REPO)
    done(publish(warm, whole, repo="feda4fair/whole"))
    assert tree == hub.tree("feda4fair/whole")


@pytest.mark.slow
def test_configs_that_make_no_one_release_are_refused(
    hub: HubEmulator, warm: Warm, built: Path, tmp_path: Path
) -> None:
    done(publish(warm, built / "acs"))
    part = small_release(tmp_path / "acs", ("value-silo",), version="1.1.0")
    manifest = read_manifest(part)
    render_again(part, {**manifest, "notes": ["only the clients VT, WY."]})
    tree = hub.tree(REPO)
    refused(publish(warm, part), "attribute-silo", "a release is whole", "other notes")
    assert hub.tree(REPO) == tree

    render_again(part, manifest)
    theirs = hub.blobs[tree["manifest.json"]]

    def meanwhile() -> None:
        hub.write(REPO, "manifest.json", theirs + b"\n", "another publisher")

    hub.fault("POST", "/commit/", then=meanwhile, times=1)
    refused(publish(warm, part), "published anew meanwhile")
    evil = json.loads(theirs)
    evil["files"]["data/attribute-silo/../../../evil"] = {"bytes": 1, "sha256": "0" * 64}
    hub.write(REPO, "manifest.json", json.dumps(evil).encode())
    refused(publish(warm, part), "which no build does")
    damaged = theirs.replace(b'"bytes": ', b'"bytes": 1')
    hub.write(REPO, "manifest.json", damaged)
    refused(publish(warm, part), "the manifest says", "build all configs")
    hub.write(REPO, "manifest.json", theirs)

    card = hub.blobs[tree["README.md"]].decode()
    metadata, body = read_card(card)
    metadata["configs"] = [c for c in metadata["configs"] if c["config_name"] == "value-silo"]
    front = f"---\n{yaml.safe_dump(metadata)}---\n"
    body = re.sub(r"<!-- feda4fair:begin config:attr.*?end config:\S+ -->\n", "", body, flags=re.S)
    hub.write(REPO, "README.md", (front + body).encode())
    done(publish(warm, part))
    assert not any("attribute-silo" in path for path in hub.tree(REPO)), "taken out by hand"


def test_a_sample_takes_the_place_of_the_benchmark_on_request_only(
    hub: HubEmulator, warm: Warm, built: Path, tmp_path: Path
) -> None:
    sample = built / "acs"
    refused(warm.run("publish", "acs", "--build", sample), "synthetic sample", "--not-benchmark")
    refused(warm.run("publish", "acs", "--sample"), "synthetic sample", "--not-benchmark")
    assert hub.requests == []
    real = Path(shutil.copytree(sample, tmp_path / "acs"))
    render_again(real, {**read_manifest(real), "synthetic": False, "benchmark": True})
    done(warm.run("publish", "acs", "--build", real))
    tree = hub.tree(REPO)
    refused(publish(warm, sample, "--tag", "v1.0.1"), "holds the benchmark", "--not-benchmark")
    assert hub.tree(REPO) == tree
    ended = done(publish(warm, sample, "--tag", "v1.0.1", "--not-benchmark"))
    assert "(a synthetic sample)" in ended.out
    assert "a synthetic sample, published" in ended.out.splitlines()[-1]


def test_a_pull_request_leaves_main_alone(hub: HubEmulator, warm: Warm, built: Path) -> None:
    refused(publish(warm, built / "acs", "--create-pr"), "does not exist")
    hub.users["hf_test"]["orgs"].append("other")
    done(
        warm.run(
            "-c",
            "from huggingface_hub import create_repo as c; c('other/acs', repo_type='dataset')",
        )
    )
    hub.users["hf_test"]["orgs"].remove("other")
    for _ in range(2):
        ended = done(publish(warm, built / "acs", "--create-pr", repo="other/acs"))
        assert ended.out
    assert set(hub.dataset("other/acs").refs) == {"refs/heads/main", "refs/pr/1"}
    assert list(hub.tree("other/acs")) == [".gitattributes"]
    assert "manifest.json" in hub.tree("other/acs", "refs/pr/1")


def test_a_private_repository_needs_a_token(hub: HubEmulator, warm: Warm, built: Path) -> None:
    repo = "feda4fair/secret"
    done(publish(warm, built / "acs", "--private", repo=repo))
    assert hub.dataset(repo).private
    # Without the token first: what is in the cache is loaded from there.
    load = f"import datasets; datasets.load_dataset({repo!r}, 'value-silo', split='test')"
    without = run(warm, load, HF_TOKEN="")
    assert without.code == 70
    assert "DatasetNotFoundError" in without.err
    done(run(warm, load))
    hub.dataset(repo).private = False
    refused(publish(warm, built / "acs", "--private", repo=repo), "is public")


def test_dry_run_shows_the_plan_and_writes_nothing(
    hub: HubEmulator, warm: Warm, built: Path
) -> None:
    ended = done(publish(warm, built / "acs", "--dry-run"))
    assert "a new repository" in ended.out
    assert "add      data/value-silo/test-00000-of-" in ended.out
    assert {method for method, _, _ in hub.requests} == {"GET"}
    assert hub.repos == {}
    anonymous = done(publish(warm, built / "acs", "--dry-run", HF_TOKEN=""))
    assert "was not checked" in anonymous.out


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("hf_wrongwrongwrongwrongwrongwrongwrong", "no such token"),
        ("", "no token"),
        ("hf_reader", "may only read"),
        ("hf_stranger", "may write to stranger, elsewhere only"),
        ("hf_guest", "may only read in feda4fair"),
        ("hf_narrow", "no repo.write"),
        ("hf_bad token\x07", "characters"),
    ],
)
def test_preflight_refuses_a_token_before_any_work(
    hub: HubEmulator, warm: Warm, tmp_path: Path, token: str, words: str
) -> None:
    ended = warm.run(
        *("publish", "acs", "--sample", "--repo-id", REPO), cwd=tmp_path, HF_TOKEN=token
    )
    refused(ended, words)
    assert len(hub.requests) <= 1, "one question is enough"
    assert list(tmp_path.iterdir()) == [], "nothing was built"
    assert hub.repos == {}


@pytest.mark.slow
def test_a_scoped_token_may_publish_and_shows_nowhere(
    hub: HubEmulator, warm: Warm, built: Path
) -> None:
    ended = done(publish(warm, built / "acs", "--debug", HF_TOKEN="hf_scoped"))
    hub.fault("POST", "/commit/", status=403, times=1)
    hub.fault("PUT", "/_lfs/", status=500, times=1)
    failed = publish(warm, built / "acs", "--debug", repo="feda4fair/two", HF_TOKEN="hf_scoped")
    assert failed.code == 70, "with --debug a traceback is shown"
    hub.faults.clear()
    texts = [ended.out, ended.err, failed.out, failed.err]
    texts += [blob.decode("latin-1") for blob in hub.blobs.values()]
    assert not any("hf_scoped" in text for text in texts)


def test_preflight_waits_for_no_slow_import() -> None:
    program = (
        "import sys, publish; print({'pandas', 'datasets', 'scipy.stats'} & set(sys.modules))"
    )
    scripts = Path(__file__).resolve().parent.parent / "scripts"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=scripts, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_celeba_and_dutch_are_refused_before_the_network(
    hub: HubEmulator, warm: Warm, built: Path
) -> None:
    refused(publish(warm, built / "celeba"), "--form index", "--include-images")
    refused(publish(warm, built / "dutch"), "--accept-terms")
    refused(warm.run("publish", "dutch", "--sample"), "--accept-terms")
    refused(publish(warm, built / "dutch", repo="no-slash"), "--accept-terms")
    assert hub.requests == []


def test_images_go_to_a_closed_repository_only(hub: HubEmulator, warm: Warm, built: Path) -> None:
    repo = "feda4fair/faces"
    refused(publish(warm, built / "celeba", "--include-images", repo=repo), "private or gated")
    assert hub.repos == {}
    done(publish(warm, built / "celeba", "--include-images", "--private", repo=repo))
    assert hub.dataset(repo).private
    hub.dataset(repo).private = False
    refused(publish(warm, built / "celeba", "--include-images", repo=repo), "private or gated")
    hub.dataset(repo).gated = "manual"
    done(publish(warm, built / "celeba", "--include-images", repo=repo))


@pytest.mark.parametrize(
    ("path", "data", "words"),
    [
        ("train.csv", b"a,b", "holds train.csv and no manifest.json"),
        ("manifest.json", b"{}", "not one of ours"),
        ("manifest.json", b'{"dataset": "dutch", "files": {}}', "holds 'dutch'"),
        (".gitignore", b"*.parquet", ".gitignore"),
        ("README.md", b"---\n[1, 2\n---\n", "YAML"),
    ],
)
def test_a_repository_of_something_else_is_left_alone(
    hub: HubEmulator, warm: Warm, built: Path, path: str, data: bytes, words: str
) -> None:
    done(
        run(
            warm, f"from huggingface_hub import create_repo as c; c({REPO!r}, repo_type='dataset')"
        )
    )
    hub.write(REPO, path, data)
    tree = hub.tree(REPO)
    refused(publish(warm, built / "acs"), words)
    assert hub.tree(REPO) == tree


def test_a_repository_cannot_make_verify_write_elsewhere(
    hub: HubEmulator, warm: Warm, built: Path, tmp_path: Path
) -> None:
    done(publish(warm, built / "acs"))
    done(warm.run("verify", REPO))
    hub.write(REPO, f"../../../../../../../..{tmp_path}/evil", b"evil")
    refused(warm.run("verify", REPO), "lead out of a folder")
    assert list(tmp_path.iterdir()) == []
    hub.write(REPO, "data/value-silo/train.parquet", b"changed", "an attack")
    refused(warm.run("verify", "feda4fair/none"), "no such repository")


def test_a_file_that_is_changed_after_its_check_is_not_sent(
    hub: HubEmulator, warm: Warm, built: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(built / "acs", tmp_path / "acs"))

    def change() -> None:
        (folder / "LICENSE").write_text("other terms")

    hub.fault("POST", "/api/repos/create", then=change, times=1)
    refused(publish(warm, folder), "LICENSE", "changed after it had been checked")
    assert hub.history(REPO) == ["initial commit"]


def test_an_endpoint_that_is_no_hub_is_a_sentence(
    hub: HubEmulator, warm: Warm, built: Path
) -> None:
    hub.fault("GET", "whoami", status=200)
    refused(publish(warm, built / "acs"), "not that of a Hub", "HF_ENDPOINT")
    hub.faults.clear()


def test_a_line_end_behind_the_token_does_no_harm_and_a_model_is_no_dataset(
    hub: HubEmulator, warm: Warm, built: Path
) -> None:
    model = hub.repos["model", REPO] = Repo("model", REPO)
    hub.new_commit(model, "refs/heads/main", {}, "a model of the same name")
    done(publish(warm, built / "acs", HF_TOKEN="hf_test\n"))
    assert len(model.commits) == 1


@pytest.mark.parametrize(
    "where",
    [
        *("whoami", "/commit/"),
        *(pytest.param(late, marks=pytest.mark.slow) for late in ("/objects/batch", "/tag/")),
    ],
)
def test_ctrl_c_is_quiet_and_the_same_command_finishes(
    hub: HubEmulator, warm: Warm, built: Path, where: str
) -> None:
    running: list[Running] = []

    def interrupt() -> None:
        os.kill(running[0].pid, signal.SIGINT)
        time.sleep(0.2)

    hub.fault("GET" if where == "whoami" else "POST", where, then=interrupt, times=1)
    words = ("publish", "acs", "--build", built / "acs", "--repo-id", REPO)
    running.append(warm.start(*words))
    ended = running[0].wait()
    assert (ended.code, ended.err) == (130, "stopped; nothing was left behind.\n")
    done(publish(warm, built / "acs"))
    assert hub.history(REPO) == ["acs v1.0.0", "initial commit"]
    assert "refs/tags/v1.0.0" in hub.dataset(REPO).refs


def test_a_full_disk_while_rebuilding_is_a_sentence(
    warm: Warm, hub: HubEmulator, built: Path, tmp_path: Path
) -> None:
    ended = warm.run(
        *("verify", built / "acs", "--rebuild"), file_bytes=20_000, TMPDIR=str(tmp_path)
    )
    refused(ended, "cannot be written")
    assert list(tmp_path.rglob("*rebuil*")) == []


@pytest.mark.slow
def test_verify_names_what_differs_on_the_hub(hub: HubEmulator, warm: Warm, built: Path) -> None:
    done(publish(warm, built / "acs"))
    hub.write(REPO, "LICENSE", b"other")
    ended = warm.run("verify", REPO)
    assert ended.code == 1
    assert "DIFFERS  LICENSE" in ended.out
    done(warm.run("verify", REPO, "--revision", "v1.0.0"))


# Local rules


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """A copy of the acs release that a test may spoil."""
    return Path(shutil.copytree(built / "acs", tmp_path / "acs"))


def spoiled(folder: Path, *words: str, listed: bool = False) -> None:
    if listed:
        write_manifest(folder, read_manifest(folder))
    with pytest.raises(Feda4FairError) as caught:
        check_release(folder, Consent())
    text = str(caught.value)
    assert all(word in text for word in words), text


def test_a_whole_release_passes(folder: Path) -> None:
    found = check_release(folder, Consent())
    assert set(found.files) == {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    }
    assert found.tag == "v1.0.0"


def test_files_that_no_build_wrote_are_refused(folder: Path) -> None:
    (folder / "data" / "extra.csv").write_text("a,b\n")
    spoiled(folder, "data/extra.csv", "not in the manifest")


def test_a_flipped_bit_is_found(folder: Path) -> None:
    path = folder / "clients" / "value-silo.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    spoiled(folder, "clients/value-silo.parquet", "other content")


def test_a_missing_or_shortened_file_is_found(folder: Path) -> None:
    path = folder / "recipes" / "value-silo.json"
    path.write_bytes(path.read_bytes()[:-1])
    spoiled(folder, "recipes/value-silo.json", "bytes")
    path.unlink()
    spoiled(folder, "recipes/value-silo.json", "missing")


def test_links_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder / "LICENSE").unlink()
    (folder / "LICENSE").symlink_to(tmp_path / "secret")
    spoiled(folder, "LICENSE")


@pytest.mark.parametrize("name", ["acs.py", "data/tool.sh", "dataset_infos.json", "x.ipynb"])
def test_programs_are_refused(folder: Path, name: str) -> None:
    (folder / name).write_text("#")
    spoiled(folder, name, "no program", listed=True)


@pytest.mark.parametrize("name", ["a b.md", "Ünicode.md", ".hidden", "con.md", "readme.md"])
def test_names_that_some_system_cannot_hold_are_refused(folder: Path, name: str) -> None:
    (folder / name).write_text("#")
    spoiled(folder, name if name != "readme.md" else "case", listed=True)


@pytest.mark.parametrize(
    "text",
    ["hf_" + "a" * 34, "ghp_" + "A1" * 18, "AKIA" + "A" * 16, "https://me:pass@example.org/x"],
)
def test_secrets_are_found(folder: Path, text: str) -> None:
    with (folder / "README.md").open("a") as stream:
        stream.write(f"\n{text}\n")
    spoiled(folder, "README.md", "token", listed=True)


def test_the_token_in_use_is_found(folder: Path) -> None:
    with (folder / "LICENSE").open("a") as stream:
        stream.write("mysecret")
    write_manifest(folder, read_manifest(folder))
    check_release(folder, Consent())
    with pytest.raises(PublishError, match="LICENSE"):
        check_release(folder, Consent(), secret="mysecret")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("data/value-silo/test-*", "data/*/test-*", "names other configs or data files"),
        ("split: test", "split: train", "names other configs or data files"),
        ("default: true", "default: false", "0 defaults"),
        ("license: cc0-1.0", "license: !!python/object/apply:os.system ['exit 3']", "mapping"),
        ("license: cc0-1.0", "license: [", "mapping"),
        ("license: cc0-1.0", "license: other", "--accept-terms"),
        ("license: cc0-1.0", "license: cc0-1.0\nx: " + "y" * 100_001, "100,000 bytes"),
        ("---\n", "", "no YAML block"),
    ],
)
def test_yaml_is_checked(folder: Path, old: str, new: str, words: str) -> None:
    card = folder / "README.md"
    text = card.read_text("utf-8")
    assert old in text
    card.write_text(text.replace(old, new, 1), "utf-8")
    spoiled(folder, words, listed=True)


def test_what_load_dataset_cannot_load_is_refused(folder: Path) -> None:
    path = next((folder / "data/value-silo").glob("test-*"))
    path.write_bytes(b"PAR1 not parquet PAR1")
    spoiled(folder, path.name, "no Parquet file", listed=True)
    shutil.copyfile(next((folder / "data/value-silo").glob("train-*")), path)
    spoiled(folder, "load_dataset gives value-silo", "rows", listed=True)


def test_rights_need_no_network_and_no_consent_for_an_index(built: Path) -> None:
    manifest = read_manifest(built / "index")
    assert "index" in check_rights(built / "index", manifest, Consent(), index_only=True)
    full = read_manifest(built / "celeba")
    for consent in (Consent(), Consent(accept_terms=True), Consent(include_images=True)):
        with pytest.raises(PublishError):
            check_rights(built / "celeba", full, consent)


@given(
    st.text(max_size=40) | st.lists(st.sampled_from(["..", ".", "a", "", "~", "C:"])).map("/".join)
)
def test_a_safe_path_stays_below_its_folder(path: str) -> None:
    if is_safe_path(path):
        base = Path("/some/folder")
        assert base in Path(os.path.normpath(base / path)).parents
        assert not any(each in path for each in '\\:*?"<>|\0\n')


@pytest.mark.parametrize("name", ["../../outside", "/etc/passwd", "a/../../b", "data/\n", "~/x"])
def test_a_manifest_cannot_point_outside(folder: Path, name: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    manifest["files"][name] = manifest["files"].pop("LICENSE")
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    spoiled(folder, repr(name))


def test_own_data_is_published_like_a_benchmark(
    warm: Warm, hub: HubEmulator, tmp_path: Path
) -> None:
    rows = pa.table({"sex": ["f", "m"] * 60, "label": [1, 0, 1] * 40, "x": range(120)})
    write(federate(rows, partition=Iid(3), dataset="loans"), tmp_path / "loans")
    place = ("--build", tmp_path / "loans", "--repo-id", "feda4fair/loans")
    refused(warm.run("publish", "own", *place), "license", "--accept-terms")
    refused(warm.run("publish", "own", "--build", tmp_path / "loans"), "name the folder")
    prose = {"title": "Loans", "license": "cc0-1.0"}
    write(
        federate(rows, partition=Iid(3), dataset="loans"),
        tmp_path / "loans",
        prose=prose,
        overwrite=True,
    )
    done(warm.run("publish", "own", *place))
    done(warm.run("verify", "feda4fair/loans", "--revision", "v1.0.0"))
    code = "import datasets; print(datasets.load_dataset('feda4fair/loans')['train'].num_rows)"
    assert done(run(warm, code)).out.strip().isdigit()
    assert not any(b"hf_test" in blob for blob in hub.blobs.values())
