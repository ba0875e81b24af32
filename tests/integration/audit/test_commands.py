"""`overnight audit` and `overnight snapshot` from the command line: exit codes, JSON, this machine."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import images
import jsonschema
import otherusers
import pytest

from overnight.interfaces import cli

REPOSITORY = pathlib.Path(__file__).parents[3]


def parse_document(name: str, text: str) -> dict[str, object]:
    schema = json.loads((REPOSITORY / f"docs/schemas/{name}.json").read_text())
    document = json.loads(text)
    jsonschema.validate(document, schema)
    return document


@pytest.fixture
def image(tmp_path: pathlib.Path) -> pathlib.Path:
    images.deep_learning(tmp_path / "image")
    return tmp_path / "image"


def test_findings_exit_with_1_and_none_with_0(
    image: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", "--root", str(image)]) == 1
    shown = capsys.readouterr().out
    assert "high: ecs.service: agent of Amazon ECS on a Kubernetes host" in shown
    assert "90-ecs.preset:2: vendor preset: enable ecs.service" in shown
    images.debian(tmp_path / "debian")
    assert cli.main(["audit", "--root", str(tmp_path / "debian")]) == 0
    assert "no findings" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    assert cli.main(["audit", "--root", str(tmp_path / "empty")]) == 3


def test_audit_json_fits_its_schema(
    image: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", "--root", str(image), "-O", "json"]) == 1
    parse_document("audit-1", capsys.readouterr().out)
    root, outside = tmp_path / "hostile", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    images.hostile(root, outside)
    cli.main(["audit", "--root", str(root), "-O", "json"])
    parse_document("audit-1", capsys.readouterr().out)
    cli.main(["audit", "--root", str(root)])
    assert "\x1b[31m\xff" not in capsys.readouterr().out


def test_changes_as_json(
    image: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = ["--home", str(tmp_path / "home"), "audit", "--root", str(image), "-O", "json"]
    assert cli.main([*audit, "--apply", "--yes"]) == 0
    assert len(parse_document("audit-change-1", capsys.readouterr().out)["steps"]) == 3
    assert cli.main([*audit, "--undo", "--yes"]) == 0
    assert parse_document("audit-change-1", capsys.readouterr().out)["done"] == "undone"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--apply"], "add --yes"),
        (["--undo"], "add --yes"),
        (["--fix", "ansible"], "one of: preset, shell, packer, cloud-init"),
        (["--fix", "shell", "--apply"], "mutually exclusive"),
        (["--cloud", "mine"], "one of: aws"),
    ],
)
def test_nothing_is_changed_by_mistake(
    image: pathlib.Path, options: list[str], words: str, tmp_path: pathlib.Path
) -> None:
    before = sorted(str(path) for path in image.rglob("*"))
    command = [sys.executable, "-m", "overnight", "--home", str(tmp_path / "home"), "audit", "--root", str(image), *options]  # fmt: skip
    process = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)  # fmt: skip
    assert process.returncode == 2
    assert words in process.stderr
    assert sorted(str(path) for path in image.rglob("*")) == before


def test_the_printed_fix_is_a_valid_shell_script(
    image: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", "--root", str(image), "--fix", "shell"]) == 1
    script = capsys.readouterr().out
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    assert "systemctl mask -- ecs.service" in script


def test_this_machine_is_audited(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "-O", "json"]) in (0, 1)
    document = parse_document("audit-1", capsys.readouterr().out)
    assert document["live"] is True
    assert document["units"] > 20


@pytest.mark.needs_root
def test_a_program_that_the_user_may_not_see_is_not_missing(image: pathlib.Path) -> None:
    tool = images.SSH.replace("/usr/sbin/sshd -D $SSHD_OPTS", "/srv/private/tool")
    other = tool.replace("private", "public")
    made = images.Image(image).unit("tool.service", tool, enabled=True)
    made.unit("other.service", other, enabled=True).file("srv/public/x").program("srv/private/tool")
    (image / "srv/private").chmod(0o700)
    opened = pathlib.Path(tempfile.mkdtemp(prefix="overnight-test-"))
    try:
        opened.chmod(0o755)
        shutil.move(image, opened / "image")
        words = ("audit", "--root", str(opened / "image"), "-O", "json")
        command = otherusers.command(opened, *words)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        shutil.rmtree(opened)
    found = parse_document("audit-1", done.stdout)["findings"]
    missing = [finding["unit"] for finding in found if finding["id"] == "missing-binary"]
    assert missing == ["other.service"]


def test_two_snapshots_of_this_machine_are_the_same(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        assert cli.main(["snapshot", "-o", str(file), "-O", "json"]) == 0
        document = parse_document("snapshot-1", capsys.readouterr().out)
        assert document == json.loads(file.read_text())
    parts = document["parts"]
    assert len(parts["sysctl"]) > 300
    assert len(parts["packages"]) > 50
    assert parts["versions"]["python3"]["version"].startswith("3.")
    assert cli.main(["snapshot", "--diff", *map(str, files), "-O", "json"]) == 0
    # Other tests run at the same time and may mount, load or listen, but not more.
    changes = parse_document("snapshot-diff-1", capsys.readouterr().out)["changes"]
    assert {change["part"] for change in changes} <= {"mounts", "modules", "loaded", "listening"}
    assert cli.main(["snapshot", "--diff", *map(str, files)]) == 0


def test_a_snapshot_has_no_environment_and_no_command_lines(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "Pl4nt3dS3cr3tV4lu3Qq"
    monkeypatch.setenv("SOME_VARIABLE", secret)
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", secret]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            assert cli.main(["snapshot", "-o", str(tmp_path / "x.json")]) == 0
        finally:
            process.communicate()
    assert secret not in (tmp_path / "x.json").read_text()


def test_a_snapshot_is_not_written_into_a_missing_folder(
    tmp_path: pathlib.Path, image: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "typo" / "x.json"
    assert cli.main(["snapshot", "--root", str(image), "-o", str(file)]) == 3
    assert "No such file or directory" in capsys.readouterr().err
    assert not file.parent.exists()


def test_a_snapshot_is_stored_in_the_home(tmp_path: pathlib.Path, image: pathlib.Path) -> None:
    assert cli.main(["--home", str(tmp_path), "snapshot", "--root", str(image)]) == 0
    files = list((tmp_path / "snapshots/image").iterdir())
    assert len(files) == 1
    assert cli.main(["snapshot", "--diff", str(files[0]), "/nonexistent"]) == 3
