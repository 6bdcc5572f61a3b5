"""Makes the Krew package: `make krew URL=https://HOST/FOLDER`, the folder from which it will be downloaded.

Writes dist/krew: an archive with the wheel and its launcher, the same bytes for the same wheel, and the
manifest with its version and checksum.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
from gzip import GzipFile
from pathlib import Path
from string import Template

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "deploy" / "krew"


def package(url: str, target: Path) -> Path:
    """Write the archive and the manifest into the folder; returns the path of the manifest."""
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("gangplan*"):
        old.unlink()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = target.glob("gangplan-*.whl")
    version = wheel.name.split("-")[1]
    archive = target / f"gangplan-krew-{version}.tar.gz"
    with (
        archive.open("wb") as file,
        GzipFile("", "wb", 9, file, 0) as packed,
        tarfile.open(mode="w", fileobj=packed) as tar,
    ):
        for one in (HERE / "kubectl-gangplan", ROOT / "LICENSE", wheel):
            tar.add(one, one.name, filter=_anonymous)
    wheel.unlink()
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    uri = f"{url.rstrip('/')}/{archive.name}"
    template = Template((HERE / "gangplan.yaml").read_text(encoding="utf-8").partition("\n")[2])
    manifest = target / "gangplan.yaml"
    filled = template.substitute(version=version, uri=uri, sha256=checksum)
    manifest.write_text(filled, encoding="utf-8")
    return manifest


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of the machine that packs it."""
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.name == "kubectl-gangplan" else 0o644
    return entry


if __name__ == "__main__":
    print(package(sys.argv[1], ROOT / "dist" / "krew"))
