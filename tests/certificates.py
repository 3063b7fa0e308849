"""Certificates for tests, made with the `openssl` command: a root, and what it signs."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """Where a certificate and its key lie, and the root that signed it."""

    cert: Path
    key: Path
    ca: Path

    @property
    def flags(self) -> list[str]:
        """The arguments of `bmgd run` that use it."""
        return ["--tls-cert", str(self.cert), "--tls-key", str(self.key), "--tls-ca", str(self.ca)]


class Root:
    """A root of one test, and a counter of what it has signed.

    Args:
        directory: where its files lie.
        name: of the root.
    """

    def __init__(self, directory: Path, name: str = "root") -> None:
        self._directory = directory
        self.cert, self._key = directory / f"{name}.pem", directory / f"{name}.key"
        self._signed = 0
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", str(self._key), "-out", str(self.cert)),
            *("-days", "30", "-addext", "basicConstraints=critical,CA:TRUE"),
        )

    def sign(self, *names: str, name: str = "", days: int = 30) -> Certificate:
        """A certificate.

        Args:
            names: what stands behind ``URI:bmgd:`` in it, such as ``bmgd/3``.
            name: of its files; by default a number.
            days: for how long it holds from now; one that has ended is of a negative number, as
                `x509 -req` of OpenSSL 3.0 takes no other date.
        """
        self._signed += 1
        stem = name or f"{self.cert.stem}-{self._signed}"
        cert, key, request, extensions = (
            self._directory / f"{stem}.{end}" for end in ("pem", "key", "csr", "ext")
        )
        uris = ",".join(f"URI:bmgd:{one}" for one in names)
        extensions.write_text(f"subjectAltName={uris}\n" if uris else "")
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={stem}", "-keyout", str(key), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.cert), "-CAkey", str(self._key)),
            *("-CAcreateserial", "-out", str(cert), "-extfile", str(extensions)),
            *("-days", str(days)),
        )
        key.chmod(0o600)
        return Certificate(cert, key, self.cert)


def sign_later(root: Root, directory: Path, name: str) -> Certificate:
    """A certificate that is not valid before ten days have passed: by `openssl ca`, which takes dates."""
    from datetime import UTC, datetime, timedelta

    cert, key, request = (directory / f"{name}.{end}" for end in ("pem", "key", "csr"))
    (directory / "index.txt").write_text("")
    (directory / "serial").write_text("77\n")
    config = directory / "ca.cnf"
    config.write_text(
        f"[ca]\ndefault_ca=d\n[d]\ndatabase={directory}/index.txt\nserial={directory}/serial\n"
        f"new_certs_dir={directory}\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n"
    )
    _openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request)),
    )
    now = datetime.now(UTC)
    dates = [f"{now + timedelta(days=days):%Y%m%d%H%M%SZ}" for days in (10, 30)]
    _openssl(
        *("ca", "-batch", "-config", str(config), "-in", str(request), "-out", str(cert)),
        *("-cert", str(root.cert), "-keyfile", str(root._key), "-notext"),
        *("-startdate", dates[0], "-enddate", dates[1]),
    )
    return Certificate(cert, key, root.cert)


def _openssl(*words: str) -> None:
    ran = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
