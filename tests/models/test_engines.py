"""Engines: builds of llama.cpp that are added, fetched, chosen, refused and removed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import httpx
import pytest

from leap_core.errors import LeapError, LeapModelDownloadError, LeapModelLoadingError, LeapNotFoundError
from leap_core.inference.llama import engines
from leap_core.inference.llama.engines import (
    chosen_engine,
    default_engine,
    find_engine,
    installed_engines,
    libraries_in,
)
from leap_core.models import engine_releases
from leap_core.models.engine_releases import RELEASES_VARIABLE, install_engine
from leap_core.models.engines import add_engine, remove_engine
from leap_core.system.directories import Directories
from tests.support.hub import FakeHub

from .broken_engines import compiled, mangle

LINUX = sys.platform.startswith("linux")
pytestmark = pytest.mark.skipif(not LINUX, reason="libraries of Linux are made here")
DEFAULT = default_engine()
MACHINE = "arm64" if platform.machine() == "aarch64" else "x64"


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A folder with a whole build: the default engine's own files, as another build would bring them."""
    folder = tmp_path / "build"
    folder.mkdir()
    for path in DEFAULT.folder.iterdir():
        shutil.copyfile(path, folder / path.name)
    return folder


def packed(folder: Path, target: Path, top: str = "llama-b12359/") -> Path:
    """The archive of a folder, with links where names of one library are alike."""
    if target.suffix == ".zip":
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            for path in sorted(folder.iterdir()):
                archive.write(path, top + path.name)
        return target
    with tarfile.open(target, "w:gz", compresslevel=1) as archive:
        for path in sorted(folder.iterdir(), key=lambda path: -len(path.name)):
            base = next((name for name in archive.getnames() if name.startswith(top + path.name + ".")), None)
            if base is None:
                archive.add(path, top + path.name)
            else:
                link = tarfile.TarInfo(top + path.name)
                link.type, link.linkname = tarfile.SYMTYPE, Path(base).name
                archive.addfile(link)
    return target


def names() -> list[str]:
    return [engine.name for engine in installed_engines(Directories.from_environment())]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["folder", ".zip", ".tar.gz"])
def test_a_build_becomes_an_engine(build, tmp_path, ending):
    source = build if ending == "folder" else packed(build, tmp_path / f"llama-b12359-bin-ubuntu-vulkan-x64{ending}")
    engine = add_engine(source)
    assert engine.name == ("build" if ending == "folder" else "b12359-vulkan") and names() == [engine.name]
    assert engine.record["devices"] == ["CPU"] and engine.has_projectors and engine.id.startswith("llama.cpp ")
    assert set(engine.libraries()) == {"llama", "ggml", "ggml-base", "mtmd"}
    assert find_engine(engine.name).id == engine.id != DEFAULT.id
    remove_engine(engine.name)
    assert names() == [] and not [*engine.folder.parent.glob("[!.]*")]


@pytest.mark.slow
def test_an_engine_is_chosen_by_environment_then_configuration(build, leap_home):
    assert chosen_engine().name == "default"
    add_engine(build, "mine")
    (leap_home / "config.toml").write_text('engine = "mine"\n')
    assert chosen_engine().name == "mine"
    assert chosen_engine({**os.environ, "LEAP_ENGINE": "default"}).name == "default"
    assert chosen_engine({**os.environ, "LEAP_ENGINE": str(build)}).folder == build
    with pytest.raises(LeapNotFoundError, match="no engine 'gone'") as caught:
        chosen_engine({**os.environ, "LEAP_ENGINE": "gone"})
    assert caught.value.hint == "there are default, mine"
    with pytest.raises(LeapError, match="in use"):
        remove_engine("mine")
    with pytest.raises(LeapError, match="already"):
        add_engine(build, "mine")
    with pytest.raises(LeapError, match="llama-cpp-python"):
        remove_engine("default")


@pytest.mark.slow
def test_without_llama_cpp_python_the_only_engine_runs(build, monkeypatch):
    monkeypatch.setattr("leap_core.inference.llama.engines.PACKAGE", "not_installed_at_all")
    with pytest.raises(LeapModelLoadingError, match="no engine to run models with") as caught:
        chosen_engine()
    assert "leap engine install" in caught.value.hint
    add_engine(build, "mine")
    assert chosen_engine().name == "mine"


ANSWER = """
import sys
from leap_core import Leap, ModelLoadingOptions
from leap_core.conversation.streams import last_of
with Leap.load("builtin", ModelLoadingOptions(engine=sys.argv[1])) as runner:
    complete = last_of(runner.create_conversation().generate_response("What is the capital of Italy?"))
print(complete.full_message.text, complete.stats.engine)
try:
    Leap.load("builtin", ModelLoadingOptions(engine="default" if sys.argv[1] != "default" else "mine"))
except Exception as error:
    print(error)
"""


@pytest.mark.slow
def test_a_process_runs_one_engine(build):
    add_engine(build, "mine")
    for name, noted in (("mine", "mine"), ("default", None)):
        done = subprocess.run([sys.executable, "-c", ANSWER, name], capture_output=True, text=True, check=False)
        answer, refusal = done.stdout.splitlines()
        assert answer == f"The capital of Italy is Rome. {noted}"
        assert f"runs the engine {name} already" in refusal


@pytest.mark.slow
def test_each_engine_has_its_own_verdicts_and_states(build):
    code = "from leap_core.inference.llama.library import state_version; print(state_version())"
    add_engine(build, "mine")
    versions = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "LEAP_ENGINE": name}, capture_output=True, check=True
        ).stdout
        for name in ("default", "mine")
    }
    assert len(versions) == 2


FOLDERS = [
    *(f"cut {share}" for share in (0, 1, 10, 50, 90, 99)),
    *(f"cut-base {share}" for share in (1, 50, 99)),
    *(f"without {name}" for name in ("libllama", "libggml", "libggml-base", "libggml-cpu")),
    *(f"text in {name}" for name in ("libllama", "libggml-base", "libggml-cpu")),
    *("empty", "empty files", "a file", "nothing", "another program", "another processor", "a Mac's", "Windows's"),
    *("layout 78 200", "layout 78 160", "layout 10 10", "layout 900 900"),
    *("needs a newer glibc", "aborts at loading", "exits at loading", "mixed"),
    *(() if os.geteuid() == 0 else ("unreadable",)),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", FOLDERS)
def test_a_wrong_build_is_refused_in_one_line(build, tmp_path, leap, kind):
    source = mangle(kind, build, tmp_path)
    done = leap("engine", "add", str(source), "--name", "wrong")
    if kind == "unreadable":
        build.chmod(0o700)
    assert done.code in (2, 3), done.stderr
    assert done.stderr.startswith("leap: error: ") and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert names() == [] and done.stdout == ""
    left = Directories.from_environment().data / "engines"
    assert not [*left.glob("[!.]*"), *left.glob(".adding*")]


LINKS = {"link": "/etc/passwd", "link up": "..", "link aside": "../b/libllama.so", "link of Windows": "..\\x"}


def archive_of(kind: str, build: Path, tmp_path: Path) -> Path:
    target = tmp_path / "llama-b1-bin-ubuntu-x64.tar.gz"
    if kind == "cut":
        packed(build, target)
        target.write_bytes(target.read_bytes()[:100_000])
    elif kind == "text":
        target.write_text("not an archive")
    elif kind == "cut zip":
        target = packed(build, tmp_path / "llama-b1-bin-ubuntu-x64.zip")
        target.write_bytes(target.read_bytes()[:-100])
    elif kind == "another ending":
        target = packed(build, target).rename(tmp_path / "llama.rar")
    else:
        with tarfile.open(target, "w:gz") as archive:
            info = tarfile.TarInfo(
                {"above": "../libllama.so", "absolute": "/tmp/leap-absolute.so"}.get(kind, "a/libllama.so")
            )
            if kind in LINKS:
                info.type, info.linkname = tarfile.SYMTYPE, LINKS[kind]
            elif kind == "hard link":
                info.type, info.linkname = tarfile.LNKTYPE, "../../x"
            elif kind == "device":
                info.type = tarfile.CHRTYPE
            info.size = 4 if info.type == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(b"\x7fELF"))
            if kind == "twice":
                archive.addfile(info, io.BytesIO(b"\x7fELF"))
    return target


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "cut",
        "text",
        "cut zip",
        "another ending",
        "above",
        "absolute",
        "link",
        *("link up", "link aside", "link of Windows"),
        "hard link",
        "device",
        "twice",
        "no build",
    ],
)
def test_a_wrong_archive_is_refused_in_one_line(build, tmp_path, leap, kind):
    done = leap("engine", "add", str(archive_of(kind, build, tmp_path)))
    assert done.code in (2, 3) and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, done.stderr
    assert names() == [] and not Path("/tmp/leap-absolute.so").exists()


# A server of releases.


@pytest.fixture(scope="session")
def archive(tmp_path_factory) -> bytes:
    """The default engine's own files in an archive."""
    return packed(DEFAULT.folder, tmp_path_factory.mktemp("release") / "a.tar.gz").read_bytes()


@pytest.fixture
def releases(archive, monkeypatch):
    """Releases at a fake server: ``publish(tag, **changes of the asset)``."""
    with FakeHub() as hub:
        for name, value in hub.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(RELEASES_VARIABLE, f"{hub.storage_url}/plain/releases")

        def publish(tag: str = "b12359", **changes: object) -> str:
            name = f"llama-{tag}-bin-ubuntu-{MACHINE}.tar.gz"
            url = hub.add_plain(f"d/{name}", archive)
            asset = {
                "name": name,
                "size": len(archive),
                "digest": f"sha256:{hashlib.sha256(archive).hexdigest()}",
                "browser_download_url": url,
            }
            other = {**asset, "name": f"llama-{tag}-bin-ubuntu-vulkan-{MACHINE}.tar.gz"}
            listed = json.dumps({"tag_name": tag, "assets": [other, {**asset, **changes}]}).encode()
            for path in (f"releases/tags/{tag}", "releases/latest"):
                hub.add_plain(path, listed)
            return name

        publish.hub = hub
        yield publish


@pytest.mark.slow
def test_a_release_is_fetched_checked_and_kept(releases):
    releases()
    seen = []
    engine = install_engine(None, on_progress=lambda *step: seen.append(step))
    assert engine.name == "b12359-cpu" and engine.record["origin"].endswith(f"ubuntu-{MACHINE}.tar.gz") and seen
    assert not [*(Directories.from_environment().cache / "engines").glob("llama*")]
    assert install_engine("b12359", "vulkan").name == "b12359-vulkan"
    with pytest.raises(LeapError, match="already"):
        install_engine("b12359")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"digest": "sha256:" + "0" * 64}, "arrived with SHA-256"),
        ({"digest": None}, "gives no SHA-256"),
        ({"digest": "md5:abc"}, "gives no SHA-256"),
        ({"size": 10}, "announced|SHA-256|size"),
        ({"size": "large"}, "how large"),
        ({"browser_download_url": "ftp://x/y"}, "does not say where"),
        ({"name": "llama-b12359-bin-win-cpu-x64.zip"}, "has no cpu build"),
    ],
)
def test_a_release_that_cannot_be_trusted_is_refused(releases, changes, says):
    releases(**changes)
    with pytest.raises(LeapError, match=says):
        install_engine("b12359")
    assert names() == []


def test_a_missing_release_is_an_error(releases, leap):
    leap.variables |= {name: value for name, value in os.environ.items() if name.startswith(("LEAP_", "HF_"))}
    done = leap("engine", "install", "b1")
    assert done.code == 4 and "has no release b1 of llama.cpp (404)" in done.stderr, done.stderr


def point(releases, tag: str = "v1.0.0", text: str = "b12359", name: str = "nightly-tag.txt") -> None:
    """The latest release is a pointer."""
    hub = releases.hub
    url = hub.add_plain(f"d/{name}", text.encode())
    asset = {"name": name, "size": len(text), "browser_download_url": url}
    listed = json.dumps({"tag_name": tag, "assets": [asset]}).encode()
    for path in (f"releases/tags/{tag}", "releases/latest"):
        hub.add_plain(path, listed)


@pytest.mark.slow
def test_a_release_that_points_to_a_build_is_followed(releases):
    releases()
    point(releases)
    assert install_engine(None).name == "b12359-cpu"
    assert install_engine("v1.0.0", "vulkan").name == "b12359-vulkan"


@pytest.mark.parametrize(
    ("pointer", "says"),
    [
        ({"text": "v1.0.0"}, "points to 'v1.0.0', which is no build"),
        ({"text": "b12359/../../x"}, "no build of llama.cpp"),
        ({"text": "b1" * 5000}, "no build of llama.cpp"),
        ({"text": "b99999"}, "b99999"),
        ({"name": "other.txt"}, "has no cpu build"),
    ],
)
def test_a_pointer_to_a_missing_build_is_refused(releases, pointer, says):
    point(releases, **pointer)
    with pytest.raises(LeapError, match=says):
        install_engine("v1.0.0")
    assert names() == []


@pytest.mark.slow
def test_the_newest_build_is_taken_where_the_latest_release_has_none(releases):
    releases("b12400")
    hub = releases.hub
    listed = json.loads(httpx.get(f"{hub.storage_url}/plain/releases/tags/b12400").content)
    hub.add_plain("releases", json.dumps([{"tag_name": "v2.0.0", "assets": []}, listed]).encode())
    hub.add_plain("releases/latest", json.dumps({"tag_name": "v2.0.0", "assets": []}).encode())
    assert install_engine(None).name == "b12400-cpu"


def zipped(target: Path, *members: tuple[str, bytes, bool]) -> Path:
    """An archive of members: name, content, and whether it is a link."""
    with zipfile.ZipFile(target, "w") as archive:
        for name, content, is_link in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o120777 if is_link else 0o100644) << 16
            archive.writestr(info, content)
    return target


@pytest.mark.parametrize(
    ("member", "says"),
    [
        (("../../escaped.so", b"x", False), "leads out of it"),
        (("/tmp/leap-escaped.so", b"x", False), "leads out of it"),
        (("a\\..\\..\\escaped.so", b"x", False), "leads out of it|holds no libllama"),
        (("a/libllama.so", b"../../etc/passwd", True), "leads out of it"),
        (("a/libllama.so", b"/etc/passwd", True), "leads out of it"),
        (("a/libllama.so", b"x" * 300_000, True), "a link that is too long"),
    ],
)
def test_a_hostile_zip_is_refused(tmp_path, leap_home, member, says):
    archive = zipped(tmp_path / "llama-b1-bin-ubuntu-x64.zip", member)
    with pytest.raises(LeapModelLoadingError, match=says):
        add_engine(archive)
    left = {path.name for path in tmp_path.rglob("*") if not path.is_dir()}
    assert left == {archive.name, ".lock"} and names() == []
    assert not Path("/tmp/leap-escaped.so").exists()


@pytest.mark.parametrize("ending", [".zip", ".tar.gz"])
def test_an_archive_that_unpacks_to_too_much_is_refused(build, tmp_path, monkeypatch, ending):
    archive = packed(build, tmp_path / f"llama-b1-bin-ubuntu-x64{ending}")
    for bound, value in (("MOST_BYTES", 1_000_000), ("MOST_MEMBERS", 3)):
        with monkeypatch.context() as patch:
            patch.setattr(f"leap_core.models.engines.{bound}", value)
            with pytest.raises(LeapModelLoadingError, match="larger than an engine can be"):
                add_engine(archive)
    assert names() == []


@pytest.mark.parametrize(
    "name",
    [
        f"llama-ubuntu-{MACHINE}-/../../../../escaped.tar.gz",
        f"llama-ubuntu-{MACHINE}-\\..\\escaped.tar.gz",
        f"llama-ubuntu-{MACHINE}-\n.tar.gz",
        f"llama-ubuntu-{MACHINE}-{'x' * 200}.tar.gz",
        f"../llama-ubuntu-{MACHINE}.tar.gz",
        f"-llama-ubuntu-{MACHINE}.tar.gz",
        5,
        None,
    ],
)
def test_names_of_assets_are_not_trusted(releases, name):
    releases(name=name)
    with pytest.raises(LeapError, match="has no cpu build"):
        install_engine("b12359")
    cache = Directories.from_environment().cache / "engines"
    assert names() == [] and not cache.exists()


def test_the_name_of_a_runtime_is_not_trusted(monkeypatch):
    monkeypatch.setattr(engine_releases, "nvidia_driver", lambda: 590)
    stem = f"bin-ubuntu-cuda-13.4-{MACHINE}"
    assets = assets_of(f"llama-b1-{stem}.tar.gz", f"cudart-llama-b1/../../{stem}.tar.gz")
    assert [file.name for file in engine_releases._files_for(assets, "cuda")] == [f"llama-b1-{stem}.tar.gz"]


def assets_of(*found: str) -> list[dict[str, object]]:
    return [
        {"name": name, "size": 1, "digest": "sha256:" + "0" * 64, "browser_download_url": "https://x/y"}
        for name in found
    ]


@pytest.mark.parametrize(("driver", "cuda"), [(590, "13.4"), (580, "13.4"), (550, "12.8"), (None, "12.8")])
def test_the_cuda_build_fits_the_driver_and_brings_its_runtime(monkeypatch, driver, cuda):
    monkeypatch.setattr(engine_releases, "nvidia_driver", lambda: driver)
    stems = [f"b12359-bin-ubuntu-cuda-{version}-{MACHINE}.tar.gz" for version in ("12.8", "13.4")]
    found = engine_releases._files_for(
        assets_of(
            *(f"{kind}-{stem}" for stem in stems for kind in ("llama", "cudart-llama")),
            f"llama-b12359-bin-ubuntu-{MACHINE}.tar.gz",
        ),
        "cuda",
    )
    assert [file.name for file in found] == [
        f"{kind}-b12359-bin-ubuntu-cuda-{cuda}-{MACHINE}.tar.gz" for kind in ("llama", "cudart-llama")
    ]


@pytest.mark.slow
def test_a_gpu_backend_that_cannot_load_is_reported(build, leap):
    compiled(build, "libneeded.so", "int needed(void) { return 1; }", "-Wl,-soname,libneeded.so.7")
    source = "int needed(void); int ggml_backend_init(void) { return needed(); }"
    compiled(build, "libggml-cuda.so", source, f"-L{build}", "-lneeded", "-Wl,--no-as-needed")
    (build / "libneeded.so").unlink()
    done = leap("engine", "add", str(build), "--name", "half")
    assert done.code == 0 and "cuda of half sees no device here" in done.stderr and "libneeded.so.7" in done.stderr


@pytest.mark.slow
def test_an_interrupted_download_resumes(releases):
    name = releases()
    hub = releases.hub
    hub.fault("status", where=name, times=50, status=403)
    with pytest.raises(LeapModelDownloadError):
        install_engine("b12359")
    hub.faults.clear()
    hub.fault("drop", where=name, after=2_000_000)
    assert install_engine("b12359").name == "b12359-cpu"


@pytest.mark.slow
def test_a_kill_while_a_build_is_added_leaves_nothing(build):
    code = (
        "import sys; from pathlib import Path; from leap_core.models.engines import add_engine; print('on', flush=True)"
    )
    code += "; add_engine(Path(sys.argv[1]), 'mine')"
    for delay in (0.0, 0.02, 0.05, 0.1):
        process = subprocess.Popen([sys.executable, "-c", code, str(build)], stdout=subprocess.PIPE)
        process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert names() == []
    assert add_engine(build, "mine").name == "mine"
    assert not [*find_engine("mine").folder.parent.glob(".adding*")]


def test_libraries_are_found_by_the_names_of_every_system(tmp_path):
    for name in ("libllama.v0.5.0.so", "libggml.v0.5.0.so", "libggml-base.so.0", "libmtmd.so", "libllama-common.so"):
        (tmp_path / name).touch()
    found = libraries_in(tmp_path)
    assert {key: path.name for key, path in found.items()} == {
        "llama": "libllama.v0.5.0.so",
        "ggml": "libggml.v0.5.0.so",
        "ggml-base": "libggml-base.so.0",
        "mtmd": "libmtmd.so",
    }


@pytest.mark.slow
def test_the_command_line_chooses_and_lists(build, leap):
    assert leap("engine", "add", str(build), "--name", "mine").stdout == "mine\n"
    assert leap("engine", "use", "mine").code == 0
    listed = json.loads(leap("engine", "list", "--format", "json").stdout)
    assert [(each["name"], each["used"]) for each in listed] == [("default", False), ("mine", True)]
    done = leap("engine", "remove", "mine")
    assert done.code == 2 and "in use" in done.stderr
    assert leap("engine", "use", "default").code == 0
    assert leap("engine", "remove", "mine").stdout == "mine\n"
    assert leap("engine", "use", "nope").code == 2


def running(name: str) -> subprocess.CompletedProcess[str]:
    """A process that loads an engine."""
    code = "from leap_core.inference.llama.library import library; library(); print('loaded')"
    environment = {**os.environ, "LEAP_ENGINE": name}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["has changed", "same time", "is gone", "is new"])
def test_a_library_that_changed_since_it_was_tried_is_not_loaded(build, change):
    engine = add_engine(build, "mine")
    assert running("mine").stdout == "loaded\n"
    library = engine.folder / "libggml-cpu.so.0"
    status = library.stat()
    if change == "is gone":
        library.unlink()
    elif change == "is new":
        library = library.with_name("libggml-other.so")
        library.write_bytes(b"x")
    else:
        with library.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\xff")
        if change == "same time":
            os.utime(library, ns=(status.st_atime_ns, status.st_mtime_ns))
    done = running("mine")
    says = f"{library.name} of the engine mine {change.replace('same time', 'has changed')} since it was added"
    assert done.returncode == 1 and says in done.stderr.splitlines()[-1]
    assert running("default").stdout == "loaded\n"
    assert running(str(engine.folder)).returncode == 1, "by its folder too"


@pytest.mark.slow
def test_hashes_are_computed_once(build, monkeypatch):
    engine, hashed, hash_file = add_engine(build, "mine"), [], engines.hash_file
    monkeypatch.setattr(engines, "hash_file", lambda path: hashed.append(path.name) or hash_file(path))
    for _ in range(3):
        engines.require_unchanged(engine)
    assert sorted(hashed) == sorted(engine.record["files"])
    (engine.folder / "libmtmd.so").touch()
    engines.require_unchanged(engine)
    assert len(hashed) == 2 * len(engine.record["files"])
    cache = Directories.from_environment().cache / engines.CHECKED
    (engine.folder / ".DS_Store").touch()
    for wrong in ("", "[1]", "null", '{"x": 5}'):
        cache.write_text(wrong)
        engines.require_unchanged(engine)
    engines.require_unchanged(find_engine("default"))
