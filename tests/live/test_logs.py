"""`mark logs`: lines of several files in their order, and whose each is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.commands.logs import show_logs
from mark.live.local.run_dir import RunFolder
from mark.service_spec import ServiceSpec


def line(at: int, process: str, message: str, **more: str) -> str:
    told = {"at": f"2026-11-28T12:00:{at:02d}.000+00:00", "process": process, "level": "info", "message": message}
    return json.dumps({**told, **more})


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARK_STATE", str(tmp_path))
    folder = RunFolder.of("shop")
    folder.lock("shop").close()
    served = [{"model": "resnet-50"}, {"model": "inception-v3"}]
    folder.create(
        Settings.model_validate({"service": {"name": "shop", "serve": served}}),
        ServiceSpec(name="shop", models=()),
    )
    texts = {
        "i-1.log.1": [line(1, "resnet-50", "put aside", model="resnet-50")],
        "i-1.log": [
            line(3, "i-1", "of the agent"),
            line(5, "resnet-50 on 0", "a tenant", model="resnet-50"),
            "of nobody",
            line(6, "inception-v3", "its neighbour", model="inception-v3"),
        ],
        "i-2.log": [line(2, "i-2", "its own", model="resnet-50"), "printed by C"],
        "controller-0.log": [line(4, "controller-0", "launch :100:", model="resnet-50", token="t1")],
    }
    for name, lines in texts.items():
        (folder.logs / name).write_text("".join(f"{one}\n" for one in lines), encoding="utf-8")
    return folder.logs


def shown(capsys: pytest.CaptureFixture[str], model: str | None, lines: int = 100) -> list[str]:
    show_logs("shop", model=model, lines=lines, follow=True)  # it is not up: nothing more comes
    return [one[24:].rstrip() for one in capsys.readouterr().out.splitlines()]


@pytest.mark.usefixtures("logs")
def test_a_models_lines_are_its_own_from_every_file_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "resnet-50") == [
        "i-1 resnet-50: put aside",
        "i-2: its own",
        "i-2: printed by C",
        "controller-0: launch :100: token=t1",
        "i-1 resnet-50 on 0: a tenant",
    ]
    assert shown(capsys, "inception-v3") == ["i-1 inception-v3: its neighbour"]
    assert len(shown(capsys, None)) == 8
    assert shown(capsys, None, lines=2) == ["i-1: of nobody", "i-1 inception-v3: its neighbour"]


@pytest.mark.usefixtures("logs")
def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(Misconfigured, match="resnet-5"):
        show_logs("shop", model="resnet-5", lines=1, follow=False)
