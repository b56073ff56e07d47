from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import NormalDist
from typing import Any

import datasets
import pandas as pd
import pytest
import yaml
from datasets.info import DatasetInfosDict
from datasets.utils.metadata import MetadataConfigs
from huggingface_hub import DatasetCard
from hypothesis import given
from hypothesis import strategies as st

import feda4fair_celeba
from feda4fair.build import build
from feda4fair.card import merge_card, render_again, render_card, write_card
from feda4fair.dataset import Dataset
from feda4fair.errors import OutputError
from feda4fair.facts import Facts, read_facts
from feda4fair.manifest import read_manifest
from feda4fair.merge import block, read_card
from feda4fair.recipe import BiasRule, ClientGroup
from feda4fair_celeba.sample import write_celeba

REPOSITORY = Path(__file__).resolve().parent.parent
DATASETS = ("acs", "dutch", "celeba")
CONFIGS = ("attribute-silo", "value-silo", "attribute-device", "value-device")

OWN = "\n## Seminar\n\nSee you on Monday.\n"

Golden = Callable[[str, str], None]


def dataset(name: str) -> Dataset:
    found = import_module(f"feda4fair_{name}").DATASET
    assert isinstance(found, Dataset)
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the three samples as folders feda4fair/<dataset>; return what holds feda4fair."""
    folder = tmp_path_factory.mktemp("cards")
    for name in DATASETS:
        options = {"images": "none"} if name == "celeba" else {}
        found = dataset(name)
        source = found.open_source(None, recipes=found.recipes, sample=True, **options)
        build(found, found.recipes, source, folder / "feda4fair" / name)
    return folder


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a small CelebA and build its index as feda4fair/celeba beside it."""
    folder = tmp_path_factory.mktemp("index")
    copy = folder / "path" / "to" / "celeba"
    copy.mkdir(parents=True)
    write_celeba(copy, rows=2_000)
    found = feda4fair_celeba.DATASET
    source = found.open_source(copy, recipes=found.recipes, images="none")
    out = folder / "feda4fair" / "celeba"
    build(found, found.recipes, source, out, form="index")
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def card(folder: Path) -> str:
    return (folder / "README.md").read_text("utf-8")


def facts(folder: Path, *configs: str) -> Facts:
    """Return the facts of a folder as if only these configs had been built."""
    manifest = read_manifest(folder)
    kept = {n: c for n, c in manifest["configs"].items() if not configs or n in configs}
    return read_facts(folder, {**manifest, "configs": kept})


def tables(text: str) -> list[pd.DataFrame]:
    """Read the Markdown tables of a text."""
    found: list[list[list[str]]] = [[]]
    for line in text.split("\n"):
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            found[-1].append([cell.strip().replace("\\|", "|") for cell in cells])
        elif found[-1]:
            found.append([])
    return [pd.DataFrame(rows[2:], columns=rows[0]) for rows in found if rows]


def section(text: str, name: str) -> str:
    begin, end = (f"<!-- feda4fair:{kind} {name} -->" for kind in ("begin", "end"))
    return text.partition(begin)[2].partition(end)[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


# What the Hub reads


@pytest.mark.parametrize("name", DATASETS)
def test_the_hub_and_datasets_accept_the_card(name: str, home: Path) -> None:
    path = home / "feda4fair" / name / "README.md"
    loaded = DatasetCard.load(path)
    assert loaded.data.pretty_name == dataset(name).prose["title"]
    configs = MetadataConfigs.from_dataset_card_data(loaded.data)
    assert tuple(configs) == CONFIGS
    assert configs.get_default_config_name() == CONFIGS[0]
    assert set(DatasetInfosDict.from_dataset_card_data(loaded.data)) == set(CONFIGS)
    front = path.read_text("utf-8").split("---\n")[1]
    assert len(front.encode()) < 100_000


def test_the_front_matter_holds_no_split_sizes(home: Path) -> None:
    metadata, _ = read_card(card(home / "feda4fair" / "dutch"))
    assert all(set(info) == {"config_name", "features"} for info in metadata["dataset_info"])
    assert metadata["size_categories"] == ["10K<n<100K"]
    assert "synthetic" in metadata["tags"]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", DATASETS)
def test_all_twelve_load(
    name: str, config: str, home: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    loaded = datasets.load_dataset(f"feda4fair/{name}", config)
    entry = read_manifest(home / "feda4fair" / name)["configs"][config]
    assert {s: d.num_rows for s, d in loaded.items()} == {
        s: e["rows"] for s, e in entry["splits"].items()
    }
    assert loaded["train"].features.to_dict() == entry["features"]


# What people run


@pytest.mark.parametrize("name", DATASETS)
def test_python_blocks_run(
    name: str, home: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flwr_datasets", reason="the Flower block needs the extra flower")
    monkeypatch.chdir(home)
    folder = home / "feda4fair" / name
    results = [execute(code) for code in blocks(card(folder), "python")]
    names: dict[str, Any] = {key: value for found in results for key, value in found.items()}
    config = read_manifest(folder)["configs"]["value-device"]
    assert names["ds"].num_rows == {s: e["rows"] for s, e in config["splits"].items()}
    assert set(names["client"]["client_id"]) == {config["example"]["client"]}
    assert names["one"].to_list() == names["client"].to_list()
    assert names["first"]["client_id"] == names["partition"][0]["client_id"]
    gone = names["removed"]
    assert len(names["restored"]) == len(names["rows"]) + (gone["split"] == "train").sum() > 0


def execute(code: str) -> dict[str, Any]:
    """Run a block of the card where the folder of the Hub lies beside it."""
    names: dict[str, Any] = {}
    exec(code.replace("hf://datasets/", ""), names)
    return names


def test_python_blocks_of_the_index_run(
    index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flwr_datasets", reason="the Flower block needs the extra flower")
    monkeypatch.chdir(index)
    results = [execute(code) for code in blocks(card(index / "feda4fair" / "celeba"), "python")]
    joined = next(r["rows"] for r in results if "join" in r)
    loaded = results[0]["ds"]
    assert loaded["train"].column_names == ["client_id", "image_id", "split"]
    assert joined["train"]["image_id"] == loaded["train"]["image_id"]
    assert {"label", "flipped", "Hair_Color"} <= set(joined["train"].column_names)


def test_the_index_card_describes_the_index_only(index: Path, home: Path) -> None:
    text = card(index / "feda4fair" / "celeba")
    (columns,) = tables(section(text, "columns"))
    assert columns["column"].tolist() == ["`client_id`", "`image_id`", "`split`"]
    metadata, _ = read_card(text)
    for info in metadata["dataset_info"]:
        assert [f["name"] for f in info["features"]] == ["client_id", "image_id", "split"]
    assert "join(" in text
    assert "join(" not in card(home / "feda4fair" / "celeba")
    assert "dropped/value" not in text


def test_shell_blocks_rebuild_the_same_bytes(home: Path, tmp_path: Path) -> None:
    folder = home / "feda4fair" / "dutch"
    (tmp_path / "scripts").symlink_to(REPOSITORY / "scripts")
    paths = os.pathsep.join([str(REPOSITORY / "shared"), str(REPOSITORY)])
    first, *others = blocks(card(folder), "bash")
    for command in [first, *(text for text in others if (REPOSITORY / text.split()[1]).exists())]:
        program, *arguments = command.split()
        assert program == "python"
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "build/dutch/manifest.json").read_bytes() == (
        folder / "manifest.json"
    ).read_bytes()


# Figures, recomputed from the rows


def labels(folder: Path, config: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return all rows after and before injection."""
    after = pd.concat(
        [pd.read_parquet(path) for path in sorted((folder / "data" / config).glob("*.parquet"))]
    )
    restored = after.assign(label=after["label"] ^ after["flipped"].astype(int))
    gone = pd.read_parquet(folder / "dropped" / f"{config}.parquet")
    return after, pd.concat([restored, gone])


def gaps(rows: pd.DataFrame, attribute: str) -> pd.DataFrame:
    """Return count, rate, rate of the rest and gap by client and value, by plain loops."""
    found = []
    for client, mine in rows.groupby("client_id", sort=False):
        for code, group in mine.groupby(attribute):
            rest = mine[mine[attribute] != code]
            if len(rest):
                gap = group["label"].mean() - rest["label"].mean()
                found.append((client, code, len(group), gap, group["label"], rest["label"]))
    columns = ["client", "code", "support", "gap", "group", "rest"]
    return pd.DataFrame(found, columns=columns)


def names_of(folder: Path, config: str, attribute: str) -> dict[int, str]:
    columns = read_manifest(folder)["configs"][config]["columns"]
    (names,) = (column["names"] for column in columns if column["name"] == attribute)
    return {int(code): name for code, name in names.items()}


def disparity_tables(text: str, config: str) -> Iterator[tuple[str, pd.DataFrame]]:
    part = section(text, f"config:{config}")
    for attribute, rest in re.findall(
        r"\*\*Disparity by (\S+)\*\*(.*?)(?=\*\*Disparity|Content hash)", part, re.DOTALL
    ):
        (table,) = tables(rest)
        yield attribute, table


@pytest.mark.parametrize(
    ("name", "config"),
    [("acs", "value-device"), ("acs", "attribute-silo"), ("dutch", "value-device")],
)
def test_disparities_equal_those_of_the_rows(name: str, config: str, home: Path) -> None:
    folder = home / "feda4fair" / name
    after, before = labels(folder, config)
    shown = dict(disparity_tables(card(folder), config))
    assert list(shown) == list(facts(folder).configs[0].recipe.schema.sensitive)
    for attribute, table in shown.items():
        names = names_of(folder, config, attribute)
        assert table["client"].tolist() == ["*all rows*", *sorted(set(after["client_id"]))]
        by_client = dict(iter(gaps(after, attribute).groupby("client")))
        old = dict(iter(gaps(before, attribute).groupby("client")))
        counts = after.groupby("client_id").size()
        for row in table.iloc[1:].itertuples(index=False, name=None):
            client, rows, was, now, value, support, gap, _ = row
            found = by_client[client]
            lowest = found[found["gap"] == found["gap"].min()]
            assert rows == f"{counts[client]:,}"
            assert was == f"{old[client]['gap'].abs().max():.3f}"
            assert now.split()[0] == f"{found['gap'].abs().max():.3f}"
            assert value == " = ".join(names[code] for code in lowest["code"])
            assert support == f"{lowest['support'].iloc[0]:,}"
            assert gap.split()[0] == f"{lowest['gap'].iloc[0]:.3f}"
            largest = found.loc[found["gap"].abs().idxmax()]
            assert ("favored" in now) == (largest["gap"] > 0 and len(names) > 2)


def wilson(labels: pd.Series, z: float) -> tuple[float, float]:
    n, p = len(labels), labels.mean()
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return center - half, center + half


def newcombe(group: pd.Series, rest: pd.Series, level: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf(1 - level / 2)
    p, q = group.mean(), rest.mean()
    (l1, u1), (l2, u2) = wilson(group, z), wilson(rest, z)
    low = p - q - math.hypot(p - l1, u2 - q)
    return low, p - q + math.hypot(u1 - p, q - l2)


def test_intervals_equal_those_of_the_rows(home: Path) -> None:
    folder = home / "feda4fair" / "acs"
    after, _ = labels(folder, "value-silo")
    table = dict(disparity_tables(card(folder), "value-silo"))["RAC1P"].iloc[1:]
    detected = table["verdict"].str.startswith("biased")
    share = detected.sum() / len(table)
    by_client = dict(iter(gaps(after, "RAC1P").groupby("client")))
    for row, found in zip(table.itertuples(index=False), detected, strict=True):
        mine = by_client[row.client]
        level = 0.05 / len(mine) * (share if found else 1)
        worst = mine.loc[mine["gap"].idxmin()]
        low, high = newcombe(worst["group"], worst["rest"], level)
        assert row[6].partition(" ")[2] == f"[{low:.3f}, {high:.3f}]"


@pytest.mark.parametrize("name", DATASETS)
def test_the_overview_equals_the_rows(name: str, home: Path) -> None:
    folder = home / "feda4fair" / name
    (overview,) = tables(section(card(folder), "head"))
    assert overview["config"].tolist() == [f"`{config}`" for config in CONFIGS]
    for config, row in zip(CONFIGS, overview.itertuples(index=False, name=None), strict=True):
        after, before = labels(folder, config)
        assert row[1:3] == (str(after["client_id"].nunique()), f"{len(after):,}")
        index = pd.read_parquet(folder / "clients" / f"{config}.parquet")
        rules = {c: tuple(r) for c, r in zip(index["client_id"], index["rules"], strict=True)}
        count = Counter(rule for texts in rules.values() for rule in texts)
        parts = row[3].split("<br>")
        assert ("no rule in" in parts[-1]) == (() in rules.values())
        ruled = [part for part in parts if not part.startswith("no rule")]
        assert len(ruled) == len(count) > 0
        for part in ruled:
            rule, number, was, now = re.fullmatch(
                r"(.+) in (\d+) \((\S+) → (\S+)\)", part
            ).groups()  # type: ignore[union-attr]
            assert int(number) == count[rule]
            attribute, _, value = rule.partition("=")
            (code,) = [c for c, n in names_of(folder, config, attribute).items() if n == value]
            clients = {client for client, texts in rules.items() if rule in texts}
            for rows, shown in ((before, was), (after, now)):
                mine = rows[rows["client_id"].isin(clients)]
                inside = mine[attribute] == code
                group, rest = (
                    mine[part].groupby("client_id")["label"].mean() for part in (inside, ~inside)
                )
                assert float(shown) == pytest.approx((group - rest).mean(), abs=0.0051)


@pytest.mark.parametrize("name", DATASETS)
def test_resolvability_counts_the_verdicts_shown(name: str, home: Path) -> None:
    text = card(home / "feda4fair" / name)
    (summary,) = tables(section(text, "fairness"))
    seen = 0
    for config in CONFIGS:
        for attribute, table in disparity_tables(text, config):
            verdicts = table["verdict"].iloc[1:]
            wanted = (
                verdicts.str.startswith("biased toward").sum(),
                verdicts.str.startswith("biased; worst is one of").sum(),
                (verdicts == "small gaps only").sum(),
                (verdicts == "cannot be told").sum(),
                (verdicts == "no figure").sum(),
            )
            here = summary["attribute"].str.split().str[0] == attribute
            row = summary[here & (summary["config"] == f"`{config}`")].iloc[0]
            assert tuple(row.iloc[3:].astype(int)) == wanted
            seen += 1
            if "(no rule)" not in row["attribute"]:
                told = f"The worst value of {attribute} can be told in {wanted[0]} of "
                (line,) = re.findall(rf"^- `{config}`: (.*)$", text, re.M)
                assert f"{told}{len(verdicts)} clients" in line
    assert seen == len(summary)


# Contradictions, limits, rights


@pytest.mark.parametrize("name", DATASETS)
def test_limits_rights_and_citation_are_on_the_card(name: str, home: Path) -> None:
    folder, prose = home / "feda4fair" / name, dataset(name).prose
    text = card(folder)
    assert all(limit.strip() in text for limit in prose["limits"])
    for key in ("summary", "uses", "ethics", "license_text", "maintenance"):
        assert prose[key].strip() in text
    assert dataset(name).citation in text
    assert (folder / "LICENSE").read_text("utf-8").strip() == prose["license_text"].strip()
    citation = yaml.safe_load((folder / "CITATION.cff").read_text("utf-8"))
    assert citation["preferred-citation"]["authors"][0]["family-names"] == "Heilmann"


# Rendering again


def test_pages_are_rendered_again_from_the_folder_alone(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dutch"
    shutil.copytree(home / "feda4fair" / "dutch", folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for page in ("README.md", "LICENSE", "CITATION.cff", "croissant.json"):
        (folder / page).unlink()
    shutil.rmtree(folder / "datasheets")
    render_again(folder)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def test_rendering_again_keeps_own_text_and_shows_pictures(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "acs"
    shutil.copytree(home / "feda4fair" / "acs", folder)
    assert "![" not in card(folder)
    (folder / "README.md").write_text(
        card(folder) + "\n## Seminar\n\nSee you on Monday.\n", "utf-8"
    )
    (folder / "assets" / "value-silo.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    manifest = render_again(folder)
    text = card(folder)
    assert text.endswith(OWN)
    assert "![value silo](assets/value-silo.png)" in text
    assert manifest == read_manifest(folder)
    assert "assets/value-silo.png" in manifest["files"]
    render_again(folder)
    assert card(folder) == text


def test_pages_name_no_place_of_this_machine(home: Path) -> None:
    for name in DATASETS:
        folder = home / "feda4fair" / name
        for path in folder.rglob("*"):
            if path.suffix in {".md", ".json", ".cff", ".bib"}:
                text = path.read_text("utf-8")
                assert str(home) not in text
                assert str(REPOSITORY) not in text


def test_a_dataset_without_prose_gets_a_card(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    shutil.copytree(home / "feda4fair" / "dutch", folder)
    manifest = {**read_manifest(folder), "prose": {}, "citation": "", "dataset": "own"}
    bare = Dataset(
        name="own", folder=tmp_path, recipes=(), open_source=dataset("dutch").open_source
    )
    write_card(folder, manifest, bare)
    loaded = DatasetCard.load(folder / "README.md")
    assert (loaded.data.pretty_name, loaded.data.license) == ("own", "unknown")
    assert "No license is stated" in loaded.text
    assert not re.search(r"\b(None|Undefined|TODO)\b", loaded.text)


# Other recipes


@pytest.fixture(scope="module")
def unusual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a config with an intersection and with a value given as its code, and a control."""
    found, out = dataset("dutch"), tmp_path_factory.mktemp("unusual") / "dutch"
    recipe = found.recipe("attribute-silo")
    both = BiasRule(where={"sex": "Female", "Marital_status": "Married"}, drop=0.5)
    code = BiasRule(where={"sex": 2}, flip=0.5)
    groups = (
        ClientGroup(name="both", clients=0.5, rules=(both,)),
        ClientGroup(name="code", clients=0.2, rules=(code,)),
    )
    recipes = (replace(recipe, groups=groups), found.recipe("value-silo").with_control("none"))
    build(found, recipes, found.open_source(None, recipes=recipes, sample=True), out)
    return out


def test_unusual_rules_are_named(unusual: Path) -> None:
    (overview,) = tables(section(card(unusual), "head"))
    first, second = overview.iloc[:, 3]
    both, code = r"sex=Female & Marital_status=Married in 25", r"sex=2 in 10 \((\S+) → (\S+)\)"
    match = re.fullmatch(f"{both}<br>{code}<br>no rule in 15", first)
    assert match is not None
    assert float(match[2]) < float(match[1]) - 0.1
    assert second == "none"
    assert "the rows are as they came" in section(card(unusual), "config:value-silo")


def test_tables_of_large_federations_end(unusual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feda4fair.card.MOST_LINES", 10)
    text = section(render_card(facts(unusual)), "config:attribute-silo")
    assert all(len(table) <= 11 for table in tables(text))
    assert "Tables end after 10 lines" in text


# Merging


def test_merging_a_card_with_itself_changes_nothing(home: Path) -> None:
    for name in DATASETS:
        text = card(home / "feda4fair" / name)
        assert merge_card(text, text) == text
        assert merge_card("", text) == text


@given(st.data())
def test_own_text_survives_wherever_it_stands(data: st.DataObject) -> None:
    names = ["head", "load", "config:a", "config:b", "license"]
    old, new = ([block(name, f"# {name} {v}") for name in names] for v in ("old", "new"))
    words = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)
    own = data.draw(st.lists(words, min_size=6, max_size=6))
    pieces = [part for pair in zip(own, [*old, ""], strict=True) for part in pair if part]
    merged = merge_card("\n\n".join(pieces), "\n\n".join(new))
    expected = [part for pair in zip(own, [*new, ""], strict=True) for part in pair if part]
    assert merged.strip() == "\n\n".join(expected).strip()
    assert merge_card(merged, "\n\n".join(new)) == merged


def test_words_in_either_card_are_kept_once() -> None:
    head, load = block("head", "# Title"), block("load", "code")
    hub = f"{head}\n\nOn the Hub.\n\n{load}\n"
    here = f"First.\n\n{head}\n\n{load}\n\n## Seminar\n\nSee you on Monday.\n"
    merged = merge_card(hub, here)
    assert merged.strip() == f"First.\n\n{hub}\n## Seminar\n\nSee you on Monday."
    assert merge_card(merged, here) == merged
    assert merge_card(merged, hub) == merged


def test_unknown_keys_and_tags_survive_and_ours_are_renewed(home: Path) -> None:
    text = card(home / "feda4fair" / "dutch")
    metadata, body = read_card(text)
    edited = {
        **metadata,
        "license": "mit",
        "license_name": "stale",
        "tags": [*metadata["tags"], "seminar"],
        "extra_gated_prompt": "Please say who you are.",
    }
    merged = merge_card(f"---\n{yaml.safe_dump(edited, sort_keys=False)}---\n{body}", text)
    found, _ = read_card(merged)
    assert found["extra_gated_prompt"] == "Please say who you are."
    assert found["tags"] == [*metadata["tags"], "seminar"]
    assert {k: v for k, v in found.items() if k not in {"tags", "extra_gated_prompt"}} == {
        k: v for k, v in metadata.items() if k != "tags"
    }


def test_the_tag_of_a_sample_goes_with_the_sample(home: Path) -> None:
    folder = home / "feda4fair" / "dutch"
    manifest = {**read_manifest(folder), "synthetic": False}
    merged, _ = read_card(merge_card(card(folder), render_card(read_facts(folder, manifest))))
    assert "synthetic" not in merged["tags"]


@pytest.mark.parametrize("rebuilt", [("value-silo",), ("attribute-device", "value-device")])
@pytest.mark.parametrize("name", DATASETS)
def test_configs_that_were_not_rebuilt_survive(
    name: str, rebuilt: tuple[str, ...], home: Path
) -> None:
    folder = home / "feda4fair" / name
    text = card(folder)
    part = render_card(facts(folder, *rebuilt))
    assert "config:attribute-silo" not in part
    merged = merge_card(text, part)
    metadata, _ = read_card(merged)
    assert metadata == read_card(text)[0]
    for config in CONFIGS:
        assert section(merged, f"config:{config}") == section(text, f"config:{config}")
    assert section(merged, "fairness") == section(text, "fairness")
    for table in ("head", "fairness"):
        assert tables(section(merged, table))[0].equals(tables(section(text, table))[0])
    columns = tables(section(merged, "columns"))[0]["column"].tolist()
    assert sorted(columns) == sorted(tables(section(text, "columns"))[0]["column"])
    assert merge_card(merged, part) == merged


def test_a_new_config_takes_its_place(home: Path) -> None:
    folder = home / "feda4fair" / "acs"
    first = render_card(facts(folder, "attribute-silo"))
    merged = merge_card(first, render_card(facts(folder, "value-silo", "value-device")))
    metadata, _ = read_card(merged)
    names = [config["config_name"] for config in metadata["configs"]]
    assert names == ["attribute-silo", "value-silo", "value-device"]
    assert [config.get("default") for config in metadata["configs"]] == [True, None, None]
    found = re.findall(r"begin config:(\S+)", merged)
    assert sorted(found) == sorted(names)


def test_a_card_written_by_hand_is_kept_below(home: Path) -> None:
    text = card(home / "feda4fair" / "dutch")
    merged = merge_card("---\nviewer: false\n---\n# My own page\r\n\r\nText.\r\n", text)
    metadata, body = read_card(merged)
    assert metadata["viewer"] is False
    assert body.endswith("<!-- feda4fair:end regenerate -->\n\n# My own page\n\nText.\n")


@pytest.mark.parametrize(
    ("existing", "message"),
    [
        ("---\na: [\n---\n", "YAML block cannot be read"),
        ("---\n- a\n---\n", "is a list"),
        ("<!-- feda4fair:begin head -->\n", "begin marker of block head has no partner"),
        ("<!-- feda4fair:end head -->\n", "end marker of block head has no partner"),
        (
            "<!-- feda4fair:begin a -->\n<!-- feda4fair:begin b -->\n",
            "begin marker of block b inside block a has no partner",
        ),
        (f"{block('a', 'x')}\n{block('a', 'x')}", "block a stands twice"),
    ],
)
def test_a_broken_card_is_refused(existing: str, message: str) -> None:
    with pytest.raises(OutputError, match=re.escape(message)) as caught:
        merge_card(existing, block("head", "# Title"))
    assert str(caught.value).count("\n") == 0


# Texts of whomever

MARKUP = """\
<!-- feda4fair:end head -->
<!-- feda4fair:begin config:x -->
</details><script>alert(1)</script>
{{ 7 * 7 }}{% raw %}
---
license: mit
---
!!python/object/apply:os.system ['exit 3']
line\r\nline\rline, bell\x07 null\x00
| a | b |
|---|---|"""


def test_text_that_plays_markup_is_only_text(home: Path, tmp_path: Path) -> None:
    text = MARKUP
    folder = tmp_path / "dutch"
    shutil.copytree(home / "feda4fair" / "dutch", folder)
    manifest = read_manifest(folder)
    manifest["prose"] |= {"title": text, "summary": text, "limits": [text]}
    manifest["configs"]["value-silo"]["columns"][2]["description"] = text
    manifest["notes"], manifest["citation"] = [text], text
    render_again(folder, manifest)
    for path in (folder / "README.md", *folder.glob("datasheets/*.md")):
        _, body = read_card(path.read_bytes().decode())
        assert not re.search(r"[\x00\x07\r]|<script", body)
    whole = card(folder)
    assert merge_card(whole, whole) == whole
    metadata, body = read_card(whole)
    assert body.count("<details>") == body.count("</details>") == len(CONFIGS)
    assert metadata["pretty_name"] == text
    assert metadata["license"] == "other"
    assert tuple(entry["config_name"] for entry in metadata["configs"]) == CONFIGS


# Golden cards


def test_card_of_acs_is_golden(home: Path, golden: Golden) -> None:
    golden("cards/acs.md", card(home / "feda4fair" / "acs"))


@pytest.mark.parametrize("name", ["dutch", "celeba"])
def test_first_pages_are_golden(name: str, home: Path, golden: Golden) -> None:
    golden(f"cards/{name}.md", without_configs(card(home / "feda4fair" / name)))


def test_first_page_of_the_index_is_golden(index: Path, golden: Golden) -> None:
    golden("cards/celeba-index.md", without_configs(card(index / "feda4fair" / "celeba")))


def without_configs(text: str) -> str:
    """Leave out the folded tables of every client, which are long."""
    pattern = r"<!-- feda4fair:begin (config:\S+) -->.*?<!-- feda4fair:end \1 -->\n\n"
    return re.sub(pattern, "", text, flags=re.DOTALL)
