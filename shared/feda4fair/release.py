"""Whether a built folder may leave: whole, loadable, well named, within its rights.

Every check is local. The first that fails raises :class:`PublishError` in one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from feda4fair.errors import OutputError, PublishError
from feda4fair.manifest import MANIFEST, Manifest, file_sha256, read_manifest

__all__ = [
    "CARD",
    "Consent",
    "LocalFile",
    "Release",
    "check_release",
    "check_rights",
    "damage",
    "is_safe_path",
    "kind_of",
]

CARD = "README.md"
CARD_YAML_BYTES = 100_000
MOST_SPLITS = 30

OPEN_LICENSES = frozenset(
    {
        *("cc0-1.0", "pddl", "odc-by", "odbl", "cc-by-4.0", "cc-by-sa-4.0"),
        *("mit", "apache-2.0", "bsd-3-clause"),
    }
)
"""Licenses under which anyone may publish the rows."""

SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", re.ASCII)
CONFIG = SEGMENT
SPLIT = re.compile(r"\w+(\.\w+)*", re.ASCII)
DEVICE_NAMES = frozenset({"con", "prn", "aux", "nul"})
HIDDEN = frozenset({".gitattributes"})
CODE = (".py", ".pyc", ".ipynb", ".sh", ".so", ".exe", ".pkl", ".pickle")

SECRETS = re.compile(
    rb"\bhf_[A-Za-z0-9]{30,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bAKIA[0-9A-Z]{16}\b"
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----|\bBearer [A-Za-z0-9._~+/-]{20,}|://[^\s/:@]+:[^\s/@]+@"
)
"""What tokens, keys and addresses with a password look like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What a publisher states about the rights to the rows.

    Parameters
    ----------
    accept_terms : bool, default False
        The publisher has settled terms that are unclear, and answers for it.
    include_images : bool, default False
        Publish rows of a source that may not be redistributed, to a closed repository only.
    closed : bool, default False
        The repository is, or will be made, private or gated.
    not_benchmark : bool, default False
        Rows that are not the benchmark's may take the place of those that are.
    """

    accept_terms: bool = False
    include_images: bool = False
    closed: bool = False
    not_benchmark: bool = False


@dataclass(frozen=True, slots=True)
class LocalFile:
    """Size and SHA-256 of a file of the folder."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A folder that passed every check.

    Attributes
    ----------
    folder : Path
        The built folder.
    manifest : dict
        Its manifest.
    files : mapping of str to LocalFile
        All its files by path, the manifest among them.
    checks : tuple of str
        What was checked, in words.
    consent : Consent
        What the publisher stated.
    base : str
        Git hash of the manifest on the Hub that the folder was completed from; empty for none.
    """

    folder: Path
    manifest: Manifest
    files: Mapping[str, LocalFile]
    checks: tuple[str, ...]
    consent: Consent = Consent()
    base: str = ""

    @property
    def kind(self) -> str:
        """What the rows are if they are not the benchmark's, in words; else empty."""
        return kind_of(self.manifest)

    @property
    def tag(self) -> str:
        """The tag of the release, e.g. ``v1.0.0``."""
        return f"v{self.manifest['version']}"


def kind_of(manifest: Manifest) -> str:
    """Return what rows are if they are not the benchmark's, in words; else empty.

    Examples
    --------
    >>> kind_of({"benchmark": False, "synthetic": False, "notes": ["a control with none bias."]})
    'not the benchmark'
    """
    if manifest["benchmark"] or manifest.get("own"):
        return ""
    return "a synthetic sample" if manifest["synthetic"] else "not the benchmark"


def check_release(
    folder: Path,
    consent: Consent,
    *,
    index_only: bool = False,
    secret: str = "",
    base: str = "",
) -> Release:
    """Check that a built folder may be published.

    Parameters
    ----------
    folder : Path
        A folder that ``build.py`` wrote.
    consent : Consent
        What the publisher states about rights.
    index_only : bool, default False
        The source may not be redistributed; only the index form of its rows may.
    secret : str
        A text that no file may hold, such as the token in use.
    base : str
        Git hash of the manifest on the Hub that the folder was completed from.

    Raises
    ------
    PublishError
        If a rule is broken.
    OutputError
        If the folder is not a build, or not as its manifest describes it.
    """
    manifest = read_manifest(folder)
    checks = [check_rights(folder, manifest, consent, index_only=index_only)]
    checks.append(_check_names(manifest))
    found = damage(folder, manifest)
    if found:
        raise OutputError(f"{folder}: {found[0]}; build the folder again.")
    checks.append(f"{len(manifest['files'])} files are as the manifest lists them")
    checks.append(_check_secrets(folder, manifest, secret))
    checks.append(_check_card(folder, manifest))
    checks.append(_check_loading(folder, manifest))
    path = folder / MANIFEST
    own = LocalFile(path.stat().st_size, file_sha256(path))
    listed = {n: LocalFile(f["bytes"], f["sha256"]) for n, f in manifest["files"].items()}
    return Release(
        folder=folder,
        manifest=manifest,
        files={**listed, MANIFEST: own},
        checks=tuple(checks),
        consent=consent,
        base=base,
    )


def check_rights(
    folder: Path, manifest: Manifest, consent: Consent, *, index_only: bool = False
) -> str:
    """Check that the rows may be published, and say why.

    Raises
    ------
    PublishError
        If they may not.
    """
    name = f"{folder} ({manifest['dataset']})"
    configs = manifest["configs"].values()
    full = [config for config in configs if config["form"] != "index"]
    if not full:
        return "rights: only an index of the rows, which may be published"
    license_name = _card_metadata(folder).get("license")
    images = any(f["_type"] == "Image" for config in full for f in config["features"].values())
    free = manifest.get("own") and license_name in OPEN_LICENSES
    if index_only or (images and not free):
        if not consent.include_images:
            raise PublishError(
                f"{name}: holds rows of a source that may not be redistributed; build the form "
                "that may (--form index), or pass --include-images with --private if you have "
                "the right to share them with a closed circle."
            )
        if not consent.closed:
            raise PublishError(
                f"{name}: rows that may not be redistributed go to a private or gated repository "
                "only; add --private, or make the repository private or gated first."
            )
        return "rights: full rows, to a closed repository, on the publisher's word"
    if license_name in OPEN_LICENSES:
        return f"rights: {license_name}"
    if not consent.accept_terms:
        raise PublishError(
            f"{name}: the license of the rows is {license_name!r}, read {folder / 'LICENSE'} and "
            "pass --accept-terms if you have settled that you may publish them."
        )
    return f"rights: license {license_name!r}, terms accepted by the publisher"


def is_safe_path(path: str) -> bool:
    """Whether a path stays below its folder and can be a file's name on every system."""
    parts = path.split("/")
    return len(path) <= 255 and all(
        part in HIDDEN
        or (
            SEGMENT.fullmatch(part) is not None
            and not part.endswith(".")
            and part.split(".")[0].lower() not in DEVICE_NAMES
        )
        for part in parts
    )


def damage(folder: Path, manifest: Manifest) -> list[str]:
    """Return how the files of a folder differ from its manifest, one phrase for each.

    Nothing outside the folder is read, whatever the manifest names.
    """
    listed = manifest["files"]
    unsafe = [name for name in listed if not is_safe_path(name)]
    if unsafe:
        return [f"the manifest names {name!r}, which is no path of a build" for name in unsafe]
    present = {path.relative_to(folder).as_posix(): path for path in _walk(folder)}
    found = [f"{name} is a link" for name, path in present.items() if path.is_symlink()]
    found += [f"{name} is missing" for name in listed if name not in present]
    found += [f"{n} is not in the manifest" for n in sorted(set(present) - {*listed, MANIFEST})]
    for name, facts in listed.items():
        path = present.get(name)
        if path is None or path.is_symlink():
            continue
        size = path.stat().st_size
        if size != facts["bytes"]:
            found.append(f"{name} has {size:,} bytes, the manifest says {facts['bytes']:,}")
        elif file_sha256(path) != facts["sha256"]:
            found.append(f"{name} has other content than the manifest says")
    return found


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        else:
            yield path


def _check_names(manifest: Manifest) -> str:
    names = [*manifest["files"]]
    folded = [name.lower() for name in names]
    for name in names:
        if not is_safe_path(name):
            raise PublishError(
                f"{name!r}: is no path that every system can hold; use letters, digits, '.', '_' "
                "and '-'."
            )
        if name.lower().endswith(CODE) or name == "dataset_infos.json":
            raise PublishError(f"{name}: no program goes to the Hub; take it out of the folder.")
        if folded.count(name.lower()) > 1:
            raise PublishError(f"{name}: another file differs from it only in case; rename one.")
    for config, facts in manifest["configs"].items():
        bad = [split for split in facts["splits"] if not SPLIT.fullmatch(split)]
        if not CONFIG.fullmatch(config) or bad:
            raise PublishError(
                f"config {config!r}, splits {list(facts['splits'])}: the Hub takes letters, "
                "digits, '.', '_', and '-' in a config only; rename."
            )
    splits = sum(len(facts["splits"]) for facts in manifest["configs"].values())
    if max(len(facts["splits"]) for facts in manifest["configs"].values()) > MOST_SPLITS:
        raise PublishError(f"a config has more than {MOST_SPLITS} splits, the Hub shows no more.")
    return f"names of {len(manifest['configs'])} configs and {splits} splits"


def _check_secrets(folder: Path, manifest: Manifest, secret: str) -> str:
    """Search what people wrote: all text, and the metadata of Parquet files."""
    for name in [*manifest["files"], MANIFEST]:
        path = folder / name
        if path.suffix == ".parquet":
            metadata = _read_schema(folder, name).metadata or {}
            text = b"\n".join(part for pair in metadata.items() for part in pair)
        else:
            text = path.read_bytes()
        if SECRETS.search(text) or (secret and secret.encode() in text):
            raise PublishError(
                f"{name}: holds what looks like a token, a key or a password; remove it, and "
                "revoke it if it is one."
            )
    return "no token, key or password in any text"


def _read_schema(folder: Path, name: str) -> pa.Schema:
    try:
        return pq.read_schema(folder / name)
    except (OSError, pa.ArrowException):
        raise OutputError(
            f"{folder / name}: is no Parquet file; build the folder again."
        ) from None


def _card_metadata(folder: Path) -> dict[str, Any]:
    """Return the YAML block of the card.

    Raises
    ------
    PublishError
        If there is none that the Hub could read.
    """
    path = folder / CARD
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError):
        raise PublishError(f"{path}: is missing or not UTF-8; build the folder again.") from None
    match = re.match(r"---\r?\n(.*?)\r?\n---\r?\n", text, re.DOTALL)
    if match is None or len(match[1].encode()) > CARD_YAML_BYTES:
        raise PublishError(
            f"{path}: begins with no YAML block of at most {CARD_YAML_BYTES:,} bytes between "
            "lines of '---'; build the folder again."
        )
    try:
        metadata = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        raise PublishError(f"{path}: its YAML block is not a mapping; build the folder again.")
    return metadata


def _check_card(folder: Path, manifest: Manifest) -> str:
    """Check that the card's configs are the manifest's, file for file."""
    metadata = _card_metadata(folder)
    wanted = {
        name: {split: [f"data/{name}/{f}" for f in part["files"]] for split, part in parts.items()}
        for name, parts in ((n, c["splits"]) for n, c in manifest["configs"].items())
    }
    try:
        found = {
            entry["config_name"]: {
                each["split"]: _matches(manifest, each["path"]) for each in entry["data_files"]
            }
            for entry in metadata["configs"]
        }
        defaults = sum(entry.get("default", False) for entry in metadata["configs"])
    except (KeyError, TypeError, AttributeError):
        raise PublishError(
            f"{folder / CARD}: its configs are not as the Hub wants them."
        ) from None
    if found != wanted or defaults != 1:
        raise PublishError(
            f"{folder / CARD}: its YAML names other configs or data files than the manifest, or "
            f"{defaults} defaults where 1 is due; build the folder again."
        )
    license_name = metadata.get("license")
    if license_name == "other" and not metadata.get("license_name"):
        raise PublishError(f"{folder / CARD}: license 'other' needs license_name.")
    return f"card: YAML with {len(wanted)} configs, license {license_name!r}"


def _matches(manifest: Manifest, pattern: str) -> list[str]:
    return [name for name in manifest["files"] if PurePosixPath(name).match(pattern)]


def _check_loading(folder: Path, manifest: Manifest) -> str:
    """Load every config as a user would, into a cache that vanishes."""
    for name, facts in manifest["configs"].items():
        rows = _loaded_rows(folder, name)
        wanted = {split: part["rows"] for split, part in facts["splits"].items()}
        if rows != wanted:
            raise PublishError(
                f"{folder}: load_dataset gives {name} with {rows} rows where the manifest has "
                f"{wanted}; build the folder again."
            )
    return f"load_dataset of {', '.join(manifest['configs'])}"


def _loaded_rows(folder: Path, config: str) -> dict[str, int]:
    import datasets

    quiet = _without_bars(datasets)
    try:
        with TemporaryDirectory(prefix="feda4fair-load-") as cache:
            loaded = datasets.load_dataset(str(folder.absolute()), config, cache_dir=cache)
            return {str(split): part.num_rows for split, part in loaded.items()}
    except (ValueError, TypeError, OSError, KeyError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    except datasets.exceptions.DatasetsError as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        quiet()
    raise PublishError(f"{folder}: load_dataset cannot load {config} ({reason}).")


def _without_bars(datasets: Any) -> Callable[[], None]:
    """Turn the progress bars of ``datasets`` off; return what turns them on again."""
    if datasets.utils.are_progress_bars_disabled():
        return lambda: None
    datasets.disable_progress_bars()
    return datasets.enable_progress_bars  # type: ignore[no-any-return]
