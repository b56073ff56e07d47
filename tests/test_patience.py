"""Waiting for the Hub: what passes is tried again, what does not ends in one sentence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from email.utils import formatdate

import pytest
from hub_emulator import HubEmulator
from huggingface_hub import get_session
from huggingface_hub.utils import hf_raise_for_status

from feda4fair.errors import OutputError, PublishError
from feda4fair.patience import Patience, patient_client, persist

QUICK = Patience(timeout=0.5, limit=1, tries=3, wait=0.01)


@pytest.fixture
def hub() -> Iterator[HubEmulator]:
    with HubEmulator() as hub:
        yield hub


def asking(hub: HubEmulator) -> Callable[[], int]:
    def ask() -> int:
        headers = {"Authorization": "Bearer hf_test"}
        response = get_session().get(f"{hub.endpoint}/api/whoami-v2", headers=headers)
        hf_raise_for_status(response)
        return int(response.status_code)

    return ask


def ask(hub: HubEmulator, said: list[str], patience: Patience = QUICK) -> int:
    with patient_client(patience):
        return persist(asking(hub), "asking", patience, said.append)


@pytest.mark.parametrize("status", [409, 412, 429, 500, 502, 503, 504])
def test_what_passes_is_tried_again(hub: HubEmulator, status: int) -> None:
    said: list[str] = []
    hub.fault("GET", "whoami", status=status, times=2)
    assert ask(hub, said) == 200
    assert [line.partition(";")[0] for line in said] == [f"asking: the Hub answered {status}"] * 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422])
def test_what_does_not_pass_is_not(hub: HubEmulator, status: int) -> None:
    hub.fault("GET", "whoami", status=status)
    with pytest.raises(PublishError, match=r"^asking: .*[.)]$") as caught:
        ask(hub, [])
    assert len(hub.requests) == 1
    assert caught.value.__suppress_context__
    assert "hf_test" not in str(caught.value)
    assert hub.endpoint not in str(caught.value)


@pytest.mark.parametrize("how", [{"cut": True}, {"lost": True}, {"silent": True}])
def test_a_connection_that_fails_is_tried_a_few_times(
    hub: HubEmulator, how: dict[str, bool]
) -> None:
    said: list[str] = []
    hub.fault("GET", "whoami", **how, times=1)
    assert ask(hub, said) == 200
    assert len(said) == 1
    hub.fault("GET", "whoami", **how)
    start = time.monotonic()
    with pytest.raises(PublishError, match=r"3 times|no request succeeded"):
        ask(hub, said)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("text", ["1", "in an hour", "soon"])
def test_retry_after_is_heeded(hub: HubEmulator, text: str) -> None:
    if text == "in an hour":
        text = formatdate(time.time() + 3600, usegmt=True)
    hub.fault("GET", "whoami", status=429, headers={"Retry-After": text}, times=1)
    start = time.monotonic()
    patience = Patience(timeout=5, limit=10, tries=2, wait=0.01)
    if "GMT" in text:
        with pytest.raises(PublishError, match=r"asks to wait 3[56]"):
            ask(hub, [], patience)
        return
    assert ask(hub, [], patience) == 200
    assert (time.monotonic() - start >= 1) == (text == "1")


def test_only_failing_time_counts(hub: HubEmulator) -> None:
    patience = Patience(timeout=1, limit=0.2, tries=1, wait=0.01)
    with patient_client(patience):
        for _ in range(2):
            assert persist(asking(hub), "asking", patience, print) == 200
            time.sleep(0.3)
        hub.fault("GET", "whoami", status=503)
        with pytest.raises(PublishError, match="answered 503"):
            persist(asking(hub), "asking", patience, print)
        time.sleep(0.3)
        with pytest.raises(PublishError, match="no request succeeded"):
            persist(asking(hub), "asking", patience, print)


def test_own_errors_pass_through_as_they_are() -> None:
    def fail() -> None:
        try:
            raise OutputError("own")
        except OutputError as error:
            raise RuntimeError("wrapped") from error

    with pytest.raises(OutputError, match=r"^own$"):
        persist(fail, "step", QUICK, print)


def test_the_client_of_others_is_given_back() -> None:
    before = get_session().timeout
    with patient_client(QUICK):
        assert get_session().timeout != before
    assert get_session().timeout == before
