"""Open the dashboard: design a fairness benchmark in a browser, without writing code."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path

from _command import run
from feda4fair.dashboard import UPLOAD_MB
from feda4fair.errors import MissingExtraError, OutputError

EXAMPLES = """examples:
  dashboard.py                          http://127.0.0.1:8501, for this machine alone
  dashboard.py --port 9000
  dashboard.py --address 0.0.0.0        for the network; visitors cannot name paths then
"""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    command = argparse.ArgumentParser(
        prog="dashboard.py",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--address", default="127.0.0.1", help="default: loopback only")
    command.add_argument("--port", type=int, default=8501, help="default: 8501")
    command.add_argument("--debug", action="store_true", help="show tracebacks")
    return command


def main(argv: Sequence[str] | None = None) -> None:
    """Serve the page until it is interrupted."""
    args = parser().parse_args(argv)
    absent = [name for name in ("streamlit", "altair") if find_spec(name) is None]
    if absent:
        raise MissingExtraError(
            f"the dashboard needs {' and '.join(absent)}, not installed here; run pip install "
            "'feda4fair[dashboard]'."
        )
    if not 0 < args.port < 65536:
        raise OutputError(f"--port {args.port}: is no port; name one from 1 to 65535.")
    local = _is_loopback(args.address)
    if not local:
        print(
            f"{args.address}: whoever reaches this address can use the page; paths of this "
            "machine cannot be named there.",
            file=sys.stderr,
        )
    _check_port(args.address, args.port)
    print(f"http://{args.address}:{args.port} (Ctrl-C ends it)", flush=True)
    if _serve(command(args.address, args.port, local=local), environment(local=local)):
        raise OutputError(
            f"the page could not be served at {args.address}:{args.port}; see the lines above."
        )


def _check_port(address: str, port: int) -> None:
    """Refuse a port that another program has, or an address that is not this machine's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
    except OSError as error:
        raise OutputError(
            f"{address}:{port}: cannot be served ({error.strerror}); name another --port."
        ) from None


def _serve(words: list[str], variables: dict[str, str]) -> int:
    """Run the server until it ends; it ends with this program."""
    with subprocess.Popen(words, env=variables) as server:
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        code = server.wait()
    return 0 if code in (-signal.SIGTERM, -signal.SIGINT) else code


def command(address: str, port: int, *, local: bool) -> list[str]:
    """Return the command that serves the page: nothing is sent out, nothing shown but errors."""
    options = {
        "server.address": address,
        "server.port": port,
        "server.headless": True,
        "server.showEmailPrompt": False,
        "server.fileWatcherType": "none",
        "server.runOnSave": False,
        "server.enableXsrfProtection": True,
        "server.enableCORS": True,
        "server.enableStaticServing": False,
        "server.enableAgentApi": False,
        "server.maxUploadSize": UPLOAD_MB,
        "browser.gatherUsageStats": False,
        "client.showErrorDetails": "none",
        "client.toolbarMode": "viewer",
        "client.showErrorLinks": False,
        "runner.magicEnabled": False,
        "logger.level": "error",
        "logger.hideWelcomeMessage": True,
    }
    page = Path(__file__).with_name("_page.py")
    flags = [f"--{name}={_text(value)}" for name, value in options.items()]
    hosts = ("127.0.0.1", "localhost", "::1") if local else ()
    flags += [f"--server.allowedHosts={host}" for host in hosts]
    own = [] if local else ["--no-paths"]
    return [sys.executable, "-m", "streamlit", "run", str(page), *flags, "--", *own]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def environment(*, local: bool) -> dict[str, str]:
    """Return an environment in which no other settings of Streamlit overrule these.

    Visitors from elsewhere do not act with the token of whoever started the server.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STREAMLIT_")}
    kept["HF_HUB_DISABLE_TELEMETRY"] = "1"
    if not local:
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            kept.pop(name, None)
        kept["HF_TOKEN_PATH"] = os.devnull
    return kept


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


if __name__ == "__main__":
    sys.exit(run(main))
