from __future__ import annotations

import csv
import gzip
import hashlib
import io
import logging
import pickle
import random
import re
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import feda4fair_celeba.source
from feda4fair.errors import SourceError
from feda4fair_celeba.annotations import hair_color, read_attributes, read_partition
from feda4fair_celeba.images import IMAGE_TYPE, FolderImages, ZipImages, attach_images
from feda4fair_celeba.sample import DrawnImages, population, write_celeba
from feda4fair_celeba.schema import ATTRIBUTES, HAIR_FLAGS
from feda4fair_celeba.source import ATTRIBUTE_FILE, CONTENT, PARTITION_FILE, ROWS, open_source

FOLDER = Path(feda4fair_celeba.source.__file__).parent
SMALL = 300


def write_attributes(path: Path, table: pa.Table, *, end: str = "\r\n") -> None:
    """Write the attribute table in the format of the original file."""
    values = np.stack([table[name].to_numpy() for name in ATTRIBUTES], axis=1)
    texts = np.where(values == 1, " 1", "-1").tolist()
    lines = [
        f"{name} {' '.join(row).lstrip()}"
        for name, row in zip(table["filename"].to_pylist(), texts, strict=True)
    ]
    head = [str(table.num_rows), " ".join(ATTRIBUTES) + " "]
    path.write_bytes((end.join([*head, *lines]) + end).encode())


@pytest.fixture(scope="module")
def real_table(shared_data: Path) -> pa.Table:
    return pq.read_table(shared_data / "celeba" / "celeba_attributes.parquet")


@pytest.fixture(scope="module")
def real(
    real_table: pa.Table, shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a folder with the two original annotation files, without images."""
    folder = tmp_path_factory.mktemp("celeba")
    write_attributes(folder / ATTRIBUTE_FILE, real_table)
    packed = shared_data / "celeba" / f"{PARTITION_FILE}.gz"
    partition = gzip.decompress(packed.read_bytes()).replace(b"\n", b"\r\n")
    (folder / PARTITION_FILE).write_bytes(partition)
    return folder


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    write_celeba(folder, rows=SMALL)
    return folder


@pytest.fixture
def small(drawn: Path, tmp_path: Path) -> Path:
    """Return a copy of a small whole source that a test may damage."""
    return Path(shutil.copytree(drawn, tmp_path / "celeba"))


def one_sentence(error: pytest.ExceptionInfo[SourceError]) -> str:
    text = str(error.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert not re.search(r"[.!?] [A-Z]", text)
    return text


def test_the_rebuilt_files_are_the_original_ones_byte_for_byte(real: Path) -> None:
    with (FOLDER / "checksums.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            content = (real / row["filename"]).read_bytes()
            assert len(content) == int(row["bytes"])
            assert hashlib.sha256(content).hexdigest() == row["sha256"]
            assert row["url"] == ""
    attributes = (real / ATTRIBUTE_FILE).read_bytes()
    assert hashlib.md5(attributes, usedforsecurity=False).hexdigest() == (
        "75e246fa4810816ffd6ee81facbd244c"
    )


def test_the_published_files_give_the_published_rows(real: Path, real_table: pa.Table) -> None:
    begin = time.process_time()
    source = open_source(real, images="none")
    assert time.process_time() - begin < 15
    table = source.read()
    assert source.published
    assert table.num_rows == ROWS == 202_599
    assert table["row_id"].to_pylist() == list(range(ROWS))
    assert table["image_id"].to_pylist() == sorted(real_table["filename"].to_pylist())
    for name in ATTRIBUTES:
        assert (table[name].to_numpy() == (real_table[name].to_numpy() == 1)).all()
    partition = table["eval_partition"].to_numpy()
    assert np.bincount(partition).tolist() == [162_770, 19_867, 19_962]
    assert (partition == real_table["partition"].to_numpy()).all()
    smiling, male = table["Smiling"].to_numpy(), table["Male"].to_numpy()
    assert smiling.mean() == pytest.approx(0.482, abs=0.0005)
    assert smiling[male == 1].mean() == pytest.approx(0.400, abs=0.0005)
    assert smiling[male == 0].mean() == pytest.approx(0.541, abs=0.0006)


def test_hair_color_of_the_published_rows(real: Path) -> None:
    table = open_source(real, images="none").read()
    color = table["Hair_Color"].to_numpy()
    flags = np.stack([table[name].to_numpy() for name in HAIR_FLAGS], axis=1)
    count = flags.sum(axis=1)
    assert np.bincount(count).tolist() == [77_003, 122_670, 2_922, 4]
    assert ((color == 0) == (count == 0)).all()
    assert ((color == 5) == (count > 1)).all()
    for code, name in enumerate(HAIR_FLAGS, start=1):
        assert (table[name].to_numpy()[color == code] == 1).all()


@given(st.lists(st.lists(st.integers(0, 1), min_size=4, max_size=4), min_size=1))
def test_hair_color_names_the_only_flag(rows: list[list[int]]) -> None:
    colors = hair_color(np.array(rows, dtype=np.int8)).tolist()
    for flags, color in zip(rows, colors, strict=True):
        names = [code for code, flag in enumerate(flags, start=1) if flag]
        assert color == (names[0] if len(names) == 1 else 5 if names else 0)


def test_the_beginning_of_the_original_file_is_refused_by_its_count(
    shared_data: Path, small: Path
) -> None:
    packed = shared_data / "celeba" / "list_attr_celeba.first2000.txt.gz"
    (small / ATTRIBUTE_FILE).write_bytes(gzip.decompress(packed.read_bytes()))
    with pytest.raises(
        SourceError, match="has 2,000 images, but its first line says 202,599"
    ) as e:
        open_source(small)
    one_sentence(e)


def test_the_order_of_lines_changes_nothing(small: Path) -> None:
    before = open_source(small)
    rows, records = before.read(), before.files()
    shuffle = random.Random(3).shuffle
    head, first, *lines = (small / ATTRIBUTE_FILE).read_bytes().splitlines(keepends=True)
    shuffle(lines)
    (small / ATTRIBUTE_FILE).write_bytes(b"".join([head, first, *lines]))
    lines = (small / PARTITION_FILE).read_bytes().splitlines(keepends=True)
    shuffle(lines)
    (small / PARTITION_FILE).write_bytes(b"".join(lines).replace(b"\r\n", b"\n"))
    after = open_source(small)
    assert after.read().equals(rows)
    assert after.files() == records


def test_the_order_of_attributes_and_the_blanks_change_nothing(small: Path) -> None:
    rows = open_source(small).read()
    head, names, *lines = (small / ATTRIBUTE_FILE).read_text("utf-8").split("\n")
    order = [0, *random.Random(5).sample(range(1, 41), 40)]
    moved = [["image_id", *names.split()][i] for i in order][1:]
    body = ["\t".join([line.split()[i] for i in order]) + "  " for line in lines if line.strip()]
    (small / ATTRIBUTE_FILE).write_text("\n".join([head, " ".join(moved), *body]), "utf-8")
    assert open_source(small).read().equals(rows)


def drop_images(folder: Path, count: int) -> None:
    for path in sorted((folder / "img_align_celeba").iterdir())[:count]:
        path.unlink()


def edit(name: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / name
        path.write_bytes(change(path.read_bytes().decode()).encode())

    return apply


PAGE = "<!DOCTYPE html><html><title>Google Drive - Quota exceeded</title></html>"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: drop_images(f, 3),
         r"3 missing: sample-00001.jpg, sample-00002.jpg, sample-00003.jpg\)"),
        (lambda f: drop_images(f, 4), r"4 missing: .*sample-00003.jpg, \.\.\.\)"),
        (lambda f: (f / "img_align_celeba" / "000000.jpg").write_bytes(b"\xff\xd8\xff"),
         "1 not named in list_attr_celeba.txt: 000000.jpg"),
        (lambda f: (f / "img_align_celeba" / "sample-00002.jpg").write_bytes(b""),
         "1 of 0 bytes: sample-00002.jpg"),
        (edit(ATTRIBUTE_FILE, lambda t: PAGE), "list_attr_celeba.txt is a web page"),
        (edit(PARTITION_FILE, lambda t: PAGE), "list_eval_partition.txt is a web page"),
        (edit(ATTRIBUTE_FILE, lambda t: " \r\n"), "list_attr_celeba.txt is empty"),
        (edit(ATTRIBUTE_FILE, lambda t: t.replace("-1", " 0")), "coded as 0 and 1 .* -1 and 1"),
        (edit(ATTRIBUTE_FILE, lambda t: t.replace(" 1 ", " 7 ", 1)), "with the value 7"),
        (edit(ATTRIBUTE_FILE, lambda t: t.replace(" 1 ", " x ", 1)), "not a whole number"),
        (edit(ATTRIBUTE_FILE, lambda t: t.replace(f"{SMALL}", f"{SMALL + 1}", 1)),
         "has 300 images, but its first line says 301"),
        (edit(ATTRIBUTE_FILE, lambda t: t.partition("\n")[2]), "begins with '5_o_Clock_Shadow"),
        (edit(ATTRIBUTE_FILE, lambda t: t.replace("Smiling", "Laughing")),
         r"names 40 attributes .*missing: Smiling"),
        (edit(ATTRIBUTE_FILE, lambda t: t.replace("Smiling ", "")), "names 39 attributes"),
        (edit(ATTRIBUTE_FILE, lambda t: t[:-100]), "line 302 has .* fields, expected 41"),
        (edit(ATTRIBUTE_FILE, lambda t: "\r\n".join(t.split("\r\n")[:2])), "names no image"),
        (edit(ATTRIBUTE_FILE, lambda t: t.replace("sample-00002", "sample-00001")),
         "names 1 images more than once, the first is sample-00001.jpg"),
        (edit(ATTRIBUTE_FILE, lambda t: t.replace("sample-00002", "other")),
         r"1 only in the first: other.jpg, 1 only in the second: sample-00002.jpg"),
        (edit(PARTITION_FILE, lambda t: t.partition("\n")[2]),
         r"1 only in the first: sample-00001.jpg, none only in the second"),
        (edit(PARTITION_FILE, lambda t: t.replace("jpg 0", "jpg 3", 1)), "has the partition 3"),
        (edit(PARTITION_FILE, lambda t: t.replace("jpg 0", "jpg", 1)), "line 1 has 1 fields"),
        (lambda f: (f / PARTITION_FILE).write_bytes(b"PK\x03\x04\xff"), "bytes beyond ASCII"),
        (lambda f: (f / PARTITION_FILE).unlink(), "holds no list_eval_partition.txt"),
        (lambda f: (f / ATTRIBUTE_FILE).unlink(), "holds no list_attr_celeba.txt"),
    ],
)  # fmt: skip
def test_a_damaged_source_is_named_before_any_work(
    small: Path, damage: Callable[[Path], None], message: str
) -> None:
    open_source(small)
    damage(small)
    with pytest.raises(SourceError, match=message) as error:
        open_source(small)
    assert str(small) in one_sentence(error)


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
def test_damage_is_a_sentence_or_another_whole_table(drawn: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([ATTRIBUTE_FILE, PARTITION_FILE]))
    content = bytearray((drawn / name).read_bytes()[:4_000])
    start = data.draw(st.integers(0, len(content) - 1))
    length = data.draw(st.integers(0, 200))
    content[start : start + length] = data.draw(st.binary(max_size=20))
    path = drawn / "damaged.txt"
    path.write_bytes(content)
    try:
        table = read_attributes(path) if name == ATTRIBUTE_FILE else read_partition(path)
    except SourceError as error:
        message = str(error)
        table = None
    if table is None:
        assert "\n" not in message
    else:
        assert all(column.null_count == 0 for column in table.columns)
        assert len(table["image_id"].unique()) == table.num_rows


def test_without_images_only_the_annotations_are_needed(
    small: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drop_images(small, 3)
    assert open_source(small, images="none").images is None
    shutil.rmtree(small / "img_align_celeba")
    with caplog.at_level(logging.WARNING):
        source = open_source(small)
    assert source.images is None
    assert "rows are built without images" in caplog.text
    rows = source.read()
    assert source.attach(rows) is rows
    assert [record.name for record in source.files()] == [ATTRIBUTE_FILE, PARTITION_FILE]
    with pytest.raises(SourceError, match="holds neither img_align_celeba nor") as error:
        open_source(small, images="embed")
    one_sentence(error)
    with pytest.raises(SourceError, match="'embed' or 'none', got 'all'") as error:
        open_source(small, images="all")  # type: ignore[arg-type]
    one_sentence(error)


def test_celeba_is_never_downloaded() -> None:
    with pytest.raises(SourceError, match="may not be downloaded") as error:
        open_source()
    assert "--source" in one_sentence(error)


def test_the_folders_of_the_original_server_are_found(small: Path) -> None:
    rows = open_source(small).read()
    for name, inner in (
        (ATTRIBUTE_FILE, "Anno"),
        (PARTITION_FILE, "Eval"),
        ("img_align_celeba", "Img"),
    ):
        (small / inner).mkdir()
        shutil.move(small / name, small / inner / name)
    source = open_source(small, images="embed")
    assert source.read().equals(rows)
    assert source.images == FolderImages(folder=small / "Img" / "img_align_celeba")


def zip_images(folder: Path) -> Path:
    path = folder / "img_align_celeba.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for picture in sorted((folder / "img_align_celeba").iterdir()):
            archive.write(picture, f"img_align_celeba/{picture.name}")
    shutil.rmtree(folder / "img_align_celeba")
    return path


def test_zipped_images_give_the_same_rows(small: Path) -> None:
    unpacked = open_source(small)
    rows = unpacked.attach(unpacked.read())
    records = unpacked.files()
    path = zip_images(small)
    source = open_source(small)
    assert source.images == ZipImages(path=path)
    assert source.attach(source.read()).equals(rows)
    assert source.files() == records
    assert pickle.loads(pickle.dumps(source)).attach(source.read()).equals(rows)


def test_a_damaged_zip_is_named(small: Path) -> None:
    path = zip_images(small)
    whole = path.read_bytes()
    for content, message in (
        (PAGE.encode(), "is a web page"),
        (whole[:-1000], "is truncated or not a zip"),
    ):
        path.write_bytes(content)
        with pytest.raises(SourceError, match=message) as error:
            open_source(small)
        assert path.name in one_sentence(error)
    path.write_bytes(whole[:100] + b"\0\0\0\0" + whole[104:])
    source = open_source(small)
    with pytest.raises(SourceError, match=r"image sample-00001\.jpg cannot be read") as error:
        source.attach(source.read().slice(0, 1))
    one_sentence(error)


def test_image_bytes_are_copied_as_they_are(small: Path) -> None:
    source = open_source(small)
    rows = source.read().slice(10, 20)
    table = source.attach(rows)
    assert table.column_names[:3] == ["row_id", "image_id", "image"]
    assert table.schema.field("image").type == IMAGE_TYPE
    assert table.drop_columns(["image"]).equals(rows)
    for image_id, image in zip(
        rows["image_id"].to_pylist(), table["image"].to_pylist(), strict=True
    ):
        content = (small / "img_align_celeba" / image_id).read_bytes()
        assert image == {"bytes": content, "path": image_id}
        with Image.open(io.BytesIO(image["bytes"])) as picture:
            assert picture.size == (178, 218)


def test_only_the_asked_images_are_read(small: Path) -> None:
    source = open_source(small)
    shutil.rmtree(small / "img_align_celeba")
    (small / "img_align_celeba").mkdir()
    wanted = source.read().slice(5, 1)
    name = wanted["image_id"][0].as_py()
    (small / "img_align_celeba" / name).write_bytes(DrawnImages().read(name))
    assert source.attach(wanted)["image"][0].as_py()["path"] == name
    with pytest.raises(SourceError, match="cannot be read") as error:
        source.attach(source.read())
    one_sentence(error)


@pytest.mark.parametrize(
    ("content", "message"), [(PAGE.encode(), "is a web page"), (b"\x89PNG....", "is not a JPEG")]
)
def test_an_image_that_is_none_is_named(small: Path, content: bytes, message: str) -> None:
    source = open_source(small)
    rows = source.read().slice(0, 2)
    (small / "img_align_celeba" / "sample-00002.jpg").write_bytes(content)
    assert source.images is not None
    with pytest.raises(SourceError, match=f"sample-00002.jpg {message}") as error:
        attach_images(rows, source.images)
    one_sentence(error)


def test_a_source_travels_without_its_rows(small: Path) -> None:
    for source in (open_source(small), open_source(sample=True)):
        rows, records = source.read(), source.files()
        moved = pickle.dumps(source)
        assert len(moved) < 1500
        again = pickle.loads(moved)
        assert again == source
        assert again.read().equals(rows)
        assert again.files() == records
        few = rows.slice(0, 5)
        assert again.attach(few).equals(source.attach(few))
        assert (source.parts, source.natural) == (("all",), "")
        with pytest.raises(SourceError, match="no part 'x'"):
            source.read("x")


def test_another_set_of_rows_is_not_the_published_one(small: Path) -> None:
    source = open_source(small)
    assert not source.published
    assert not source.synthetic
    assert len(CONTENT) == 64


def test_the_sample_is_its_own_source() -> None:
    source = open_source(sample=True)
    assert source.synthetic
    assert source.read().equals(population())
    assert [record.name for record in source.files()] == ["sample", "img_align_celeba"]
    assert open_source(sample=True, images="none").images is None


def test_the_written_sample_gives_the_sample(small: Path) -> None:
    columns = [name for name in population().column_names if name != "row_id"]
    assert (
        open_source(small)
        .read()
        .select(columns)
        .equals(population().slice(0, SMALL).select(columns))
    )
    with pytest.raises(SourceError, match="has 6,000 rows, 6001 were asked for"):
        write_celeba(small, rows=6001)
