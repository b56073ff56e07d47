from __future__ import annotations

import gzip
import io
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from PIL import Image

import feda4fair_celeba
from feda4fair.build import build
from feda4fair.cube import Cube
from feda4fair.errors import RecipeError
from feda4fair.federation import Federation
from feda4fair.rates import rates
from feda4fair.recipe import ClientSplit, Gaussian, Recipe
from feda4fair.split import SPLITS, draw_test_clients
from feda4fair.steps import federate_table, known_clients
from feda4fair_celeba import DATASET
from feda4fair_celeba.configs import RECIPES, with_images
from feda4fair_celeba.faces import SIZE, Face, jpeg
from feda4fair_celeba.sample import NOTICE, DrawnImages, population, write_celeba
from feda4fair_celeba.schema import ATTRIBUTES, HAIR_FLAGS
from feda4fair_celeba.source import open_source

NAMES = ["attribute-silo", "value-silo", "attribute-device", "value-device"]
SELECTED = 122_670

needs_linux = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory is read from /proc"
)


def groups_of(recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """Return the clients of every group; shares are taken in client order."""
    clients = known_clients(recipe)
    shares = np.cumsum([0.0, *(group.clients for group in recipe.groups)])
    bounds = [round(share * len(clients)) for share in shares]
    return {
        group.name: clients[start:stop]
        for group, start, stop in zip(recipe.groups, bounds[:-1], bounds[1:], strict=True)
    }


def cube_of(federation: Federation) -> Cube:
    """Count the labels of every client, over the attributes that rules name."""
    table, schema = federation.table, federation.recipe.schema
    names = [c.name for c in federation.clients]
    attributes = {rule.where[0][0] for rule in federation.recipe.rules}
    return Cube.count(
        clients=np.repeat(np.arange(len(names)), np.diff(federation.offsets)),
        client_names=names,
        attributes={
            name: (table[name].to_numpy(), dict(schema[name].coding.names))  # type: ignore[union-attr]
            for name in sorted(attributes)
        },
        y_true=table["label"].to_numpy(),
    )


def winners(federation: Federation) -> dict[str, tuple[int, int]]:
    """Count, for every group, the clients that come out biased as their rule wants.

    That is toward the attribute of the larger disparity, or the value of the lowest rate.
    """
    cube = cube_of(federation)
    by_attribute = len(cube.attributes) > 1
    if by_attribute:
        sizes = [rates(cube.on(attribute.name)).size() for attribute in cube.attributes]
        found = [cube.attributes[i].name for i in np.argmax(sizes, axis=0)]
    else:
        lowest = rates(cube).lowest().argmax(axis=1)
        found = [cube.attributes[0].values[i] for i in lowest]
    won = dict(zip(cube.clients, found, strict=True))
    counts = {}
    for group in federation.recipe.groups:
        wanted = str(group.rules[0].where[0][0 if by_attribute else 1])
        clients = groups_of(federation.recipe)[group.name]
        counts[wanted] = (sum(won[name] == wanted for name in clients), len(clients))
    return counts


@pytest.fixture(scope="module")
def folder(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the real annotations back to the format of the original files."""
    target = tmp_path_factory.mktemp("celeba")
    table = pq.read_table(shared_data / "celeba" / "celeba_attributes.parquet")
    values = np.stack([table[name].to_numpy() for name in ATTRIBUTES], axis=1)
    texts = np.where(values == 1, " 1", "-1").tolist()
    ids = table["filename"].to_pylist()
    lines = [f"{name} {' '.join(row)}" for name, row in zip(ids, texts, strict=True)]
    text = "\n".join([str(len(ids)), " ".join(ATTRIBUTES), *lines, ""])
    (target / "list_attr_celeba.txt").write_text(text, "utf-8")
    packed = shared_data / "celeba" / "list_eval_partition.txt.gz"
    (target / "list_eval_partition.txt").write_bytes(gzip.decompress(packed.read_bytes()))
    return target


@pytest.fixture(scope="module")
def rows(folder: Path) -> pa.Table:
    return open_source(folder, images="none").read()


@pytest.fixture(scope="module")
def federations(rows: pa.Table) -> dict[str, Federation]:
    return {recipe.name: federate_table(rows, recipe) for recipe in RECIPES}


@pytest.mark.parametrize(
    ("config", "least"),
    [
        ("attribute-silo", {"Male": 24, "Black_Hair": 24}),
        ("attribute-device", {"Male": 70, "Black_Hair": 65}),
        ("value-silo", {"Black": 22, "Blond": 22}),
        ("value-device", {"Black": 64, "Blond": 64}),
    ],
)
def test_clients_are_biased_as_the_paper_shows(
    federations: dict[str, Federation], config: str, least: dict[str, int]
) -> None:
    counts = winners(federations[config])
    sys.stdout.write(f"celeba/{config}: {counts}\n")
    assert counts.keys() == least.keys()
    for name, (won, clients) in counts.items():
        assert won >= least[name], f"{name}: {won} of {clients}"


@pytest.mark.parametrize("config", ["attribute-silo", "attribute-device"])
def test_hair_disparity_of_the_sex_clients_is_close_to_zero(
    federations: dict[str, Federation], config: str
) -> None:
    federation = federations[config]
    cube = cube_of(federation)
    by_sex, by_hair = groups_of(federation.recipe).values()
    hair = rates(cube.on("Black_Hair")).size()
    assert hair[: len(by_sex)].mean() == pytest.approx(0.03, abs=0.01)
    assert hair[len(by_sex) :].mean() > 0.3
    assert len(hair) == len(by_sex) + len(by_hair)


@pytest.mark.parametrize("config", NAMES)
def test_every_row_is_accounted_for(
    federations: dict[str, Federation], rows: pa.Table, config: str
) -> None:
    federation = federations[config]
    kept, dropped = federation.table, federation.dropped
    total = kept.num_rows + dropped.num_rows
    assert total + federation.left_out == federation.source_rows == 202_599
    assert total == (SELECTED if config.startswith("value") else 202_599)
    ids = np.concatenate([kept["row_id"].to_numpy(), dropped["row_id"].to_numpy()])
    assert len(np.unique(ids)) == total
    source = rows.take(kept["row_id"])
    assert kept["image_id"].equals(source["image_id"])
    clean = kept["label"].to_numpy() ^ kept["flipped"].to_numpy()
    assert (clean == source["Smiling"].to_numpy()).all()
    assert (dropped["label"].to_numpy() == 1).all()
    sizes = np.diff(federation.offsets) + np.array(
        [pc.sum(pc.equal(dropped["client_id"], c.name)).as_py() for c in federation.clients]
    )
    assert sizes.max() - sizes.min() <= 1


def test_value_configs_hold_exactly_one_hair_color(
    federations: dict[str, Federation], rows: pa.Table
) -> None:
    for config in ("value-silo", "value-device"):
        federation = federations[config]
        for table in (federation.table, federation.dropped):
            flags = rows.take(table["row_id"]).select(HAIR_FLAGS)
            count = sum(flags[name].to_numpy() for name in HAIR_FLAGS)
            assert (count == 1).all()
            assert not set(HAIR_FLAGS) & set(table.column_names)
            for code, name in enumerate(HAIR_FLAGS, start=1):
                here = table["Hair_Color"].to_numpy() == code
                assert (flags[name].to_numpy()[here] == 1).all()


def test_attribute_configs_keep_the_flags_of_every_image(
    federations: dict[str, Federation], rows: pa.Table
) -> None:
    table = federations["attribute-silo"].table
    source = rows.take(table["row_id"])
    for name in HAIR_FLAGS:
        assert table[name].equals(source[name])
    assert "Hair_Color" not in table.column_names


@pytest.mark.parametrize("config", NAMES)
def test_rules_touch_only_the_favorable_rows_of_their_group(
    federations: dict[str, Federation], config: str
) -> None:
    federation = federations[config]
    for group, clients in groups_of(federation.recipe).items():
        column, _, value = group.partition("=")
        code = federation.recipe.schema.code(column, value)
        for name in clients:
            client = federation.client(name)
            flipped = client.filter(client["flipped"])
            assert set(flipped[column].to_pylist()) <= {code}
            assert set(flipped["label"].to_pylist()) <= {0}


def peak_of(code: str) -> int:
    """Run code in a process of its own and return its peak memory in kB.

    Linux counts what the starting process held towards ``ru_maxrss``; ``VmHWM`` begins at zero.
    """
    code += """
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[-1])


@needs_linux
def test_all_four_configs_of_the_full_table_are_small(folder: Path) -> None:
    peak = peak_of(f"""
from feda4fair.steps import federate_table
from feda4fair_celeba import DATASET
source = DATASET.open_source({str(folder)!r}, images="none")
for recipe in DATASET.recipes:
    federate_table(source.read("all"), recipe)
""")
    assert peak < 1.5e6


@needs_linux
@pytest.mark.slow
def test_a_build_of_the_full_table_fits_its_budget(folder: Path, tmp_path: Path) -> None:
    peak = peak_of(f"""
from pathlib import Path
from feda4fair.build import build
from feda4fair_celeba import DATASET
source = DATASET.open_source({str(folder)!r}, images="none")
build(DATASET, DATASET.recipes, source, Path({str(tmp_path / "out")!r}))
""")
    assert peak < 1.5e6


@pytest.mark.parametrize("control", ["none", "homogeneous"])
def test_controls_keep_clients_and_splits(control: str) -> None:
    rows = population()
    for recipe in RECIPES:
        plain = federate_table(rows, recipe)
        other = federate_table(rows, DATASET.choose([recipe.name], control=control)[0])
        assert [c.name for c in other.clients] == [c.name for c in plain.clients]
        assert len({entry.rule for entry in other.ledger}) == (control == "homogeneous")


def test_recipes_say_what_the_paper_says() -> None:
    assert [recipe.name for recipe in RECIPES] == NAMES
    assert [len(known_clients(recipe)) for recipe in RECIPES] == [50, 50, 150, 150]
    means = {"Male=Male": 0.28, "Black_Hair=Black": 0.60,
             "Hair_Color=Black": 0.35, "Hair_Color=Blond": 0.35}  # fmt: skip
    for recipe in RECIPES:
        assert (recipe.seed, recipe.sampler, recipe.dataset) == (42, "keyed", "celeba")
        assert Recipe.from_json(recipe.to_json()) == recipe
        hair = "Hair_Color" if recipe.name.startswith("value") else "Black_Hair"
        assert set(recipe.schema.sensitive) == {"Male", hair}
        for rule in recipe.rules:
            assert rule.label == 1
            assert rule.drop == Gaussian(mean=0.3, std=0.05)
            assert rule.flip == Gaussian(mean=means[rule.name], std=0.02)
        assert {len(clients) for clients in groups_of(recipe).values()} == {
            len(known_clients(recipe)) // 2
        }


@pytest.mark.parametrize("config", ["attribute-device", "value-device"])
def test_test_clients_are_the_frozen_draw_and_balanced(config: str) -> None:
    recipe = DATASET.recipe(config)
    assert isinstance(recipe.split, ClientSplit)
    group_of = {name: group for group, names in groups_of(recipe).items() for name in names}
    drawn = draw_test_clients(
        {name: (name, group) for name, group in group_of.items()}, 30, seed=42, scope=config
    )
    assert recipe.split.test == drawn
    for group in recipe.groups:
        assert sum(group_of[name] == group.name for name in drawn) == 15


@pytest.mark.parametrize("config", ["attribute-silo", "value-silo"])
def test_silo_splits_hold_their_shares_in_every_client(
    federations: dict[str, Federation], config: str
) -> None:
    federation = federations[config]
    for client in federation.clients:
        codes = federation.split[client.start : client.stop]
        gone = federation.dropped.filter(pc.equal(federation.dropped["client_id"], client.name))
        counts = np.bincount(codes, minlength=3)
        before = counts + [gone["split"].to_pylist().count(name) for name in SPLITS]
        assert before / before.sum() == pytest.approx([0.7, 0.1, 0.2], abs=0.002)


def test_images_decide_nothing(rows: pa.Table) -> None:
    recipe = RECIPES[1]
    plain, pictured = federate_table(rows, recipe), federate_table(rows, with_images(recipe))
    assert plain.table.equals(pictured.table)
    assert with_images(recipe).schema["image"].dtype == "image"
    assert Recipe.from_json(with_images(recipe).to_json()) == with_images(recipe)


def test_the_sample_is_made_up_repeatable_and_plausible(
    untouched_random: None, rows: pa.Table
) -> None:
    table = population()
    assert population().equals(table)
    assert not population(seed=1).equals(table)
    assert table.num_rows == 6_000
    assert table.schema.equals(rows.schema)
    assert all(name.startswith("sample-") for name in table["image_id"].to_pylist())
    for name in (*ATTRIBUTES, *HAIR_FLAGS):
        mean = rows[name].to_numpy().mean()
        assert table[name].to_numpy().mean() == pytest.approx(mean, abs=0.04), name
    for sex, smiling in ((1, 0.400), (0, 0.541)):
        of_sex = table["Smiling"].to_numpy()[table["Male"].to_numpy() == sex]
        assert of_sex.mean() == pytest.approx(smiling, abs=0.03)
    colors = np.bincount(table["Hair_Color"].to_numpy(), minlength=6) / 6_000
    assert colors[0] == pytest.approx(0.38, abs=0.03)
    assert "no row or picture shows a person" in NOTICE


def test_drawn_faces_are_small_jpegs_and_show_the_attributes(untouched_random: None) -> None:
    content = jpeg(Face(male=True, smiling=True, hair=1))
    assert content == jpeg.__wrapped__(Face(male=True, smiling=True, hair=1))
    assert len(content) < 10_000
    with Image.open(io.BytesIO(content)) as picture:
        assert (picture.format, picture.size) == ("JPEG", SIZE)
    faces = [Face(male=m, smiling=s, hair=h, glasses=g, beard=False, variant=v)
             for m in (False, True) for s in (False, True) for h in range(6)
             for g in (False, True) for v in range(4)]  # fmt: skip
    assert len({jpeg(face) for face in faces}) == len(faces)


def test_drawing_all_pictures_of_the_sample_is_quick() -> None:
    begin = time.process_time()
    sizes = DrawnImages().sizes()
    assert time.process_time() - begin < 10
    assert set(sizes) == set(population()["image_id"].to_pylist())


@pytest.mark.parametrize("config", NAMES)
def test_the_sample_makes_all_configs(config: str) -> None:
    source = DATASET.open_source(None, sample=True, images="none")
    federation = federate_table(source.read("all"), DATASET.recipe(config))
    assert len(federation.clients) == len(known_clients(federation.recipe))
    counts = winners(federation)
    if config.endswith("silo"):
        assert sum(won for won, _ in counts.values()) > 0.6 * len(federation.clients)


def test_a_build_copies_the_image_bytes(tmp_path: Path) -> None:
    home = tmp_path / "celeba"
    home.mkdir()
    write_celeba(home, rows=1_000)
    source = open_source(home)
    recipes = [source.fit(recipe) for recipe in DATASET.choose(["attribute-silo"])]
    build(DATASET, recipes, source, tmp_path / "out")
    rows = 0
    for path in (tmp_path / "out" / "data").rglob("*.parquet"):
        file = pq.ParquetFile(path)
        for i in range(len(file.schema)):
            chunk = file.metadata.row_group(0).column(i)
            if chunk.path_in_schema == "image.bytes":
                assert chunk.compression == "UNCOMPRESSED"
                assert not chunk.has_dictionary_page
        for row in file.read(["image_id", "image"]).to_pylist():
            content = (home / "img_align_celeba" / row["image_id"]).read_bytes()
            assert row["image"] == {"bytes": content, "path": row["image_id"]}
            rows += 1
    assert rows > 900


def test_the_builder_yields_the_federation(tmp_path: Path) -> None:
    recipe = DATASET.recipe("value-device")
    builder = feda4fair_celeba.Feda4FairCelebA(
        cache_dir=str(tmp_path), config_name=recipe.name, sample=True
    )
    builder.download_and_prepare()
    loaded = builder.as_dataset()
    assert set(loaded["test"]["client_id"]) == set(recipe.split.test)
    federation = federate_table(population(), recipe)
    assert sum(split.num_rows for split in loaded.values()) == federation.table.num_rows
    first = loaded["test"][0]
    assert first["image"].size == SIZE
    expected = federation.client(first["client_id"]).slice(0, 1).to_pylist()[0]
    assert {name: first[name] for name in expected} == expected
    with pytest.raises(RecipeError, match="config_name='value-device'"):
        feda4fair_celeba.Feda4FairCelebA("value-device")


def test_the_builder_leaves_images_out_where_none_are(tmp_path: Path) -> None:
    write_celeba(tmp_path, images=False)
    for options in ({"sample": True, "images": "none"}, {"data_dir": str(tmp_path)}):
        builder = feda4fair_celeba.Feda4FairCelebA(
            cache_dir=str(tmp_path / "cache"), config_name="value-silo", **options
        )
        assert "image" not in builder.info.features
        assert "image_id" in builder.info.features


def test_prose_answers_the_questions_of_a_datasheet() -> None:
    folders = [DATASET.folder.parent / f"feda4fair_{name}" for name in ("acs", "dutch", "celeba")]
    keys = {
        "title", "summary", "license", "license_text", "task_categories", "tags", "motivation",
        "composition", "collection", "preprocessing", "uses", "distribution", "maintenance",
        "ethics", "limits",
    }  # fmt: skip
    for folder in folders:
        prose = tomllib.loads((folder / "prose.toml").read_text("utf-8"))
        assert keys <= set(prose)
        assert all(prose.values())
        assert prose["license"] != "other" or {"license_name", "license_link"} <= set(prose)
        citation = (folder / "CITATION.bib").read_text("utf-8")
        assert "2506.21095" in citation
        assert citation.count("{") == citation.count("}")
        assert citation.count("@") >= 2


def test_importing_the_dataset_is_cheap() -> None:
    code = (
        "import sys, feda4fair_celeba; feda4fair_celeba.DATASET.recipes; "
        "heavy = {'datasets', 'sklearn', 'scipy', 'pandas', 'polars', 'PIL'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'Feda4Fair'"):
        feda4fair_celeba.Feda4Fair  # noqa: B018
