"""What the machine's environment says about reaching a host: proxy, certificates, open files."""

from __future__ import annotations

import os
import ssl
import sys
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from coeval.core.errors import UsageError

__all__ = [
    "proxy_for",
    "raise_open_file_limit",
    "redirected_by",
    "trust_in_force",
    "trusted_certificates",
]

_ENOUGH_FILES = 65_536
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""The first that is set takes the place of the default, the system's or OpenSSL's own variables."""
_OPENSSLS = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def proxy_for(url: URL) -> URL | None:
    """The proxy that ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` name for a URL.

    Read once per endpoint: aiohttp's own ``trust_env`` asks a thread twice for every request.
    """
    proxies = getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or proxy_bypass(f"{url.host}:{url.port}"):
        return None
    try:
        proxy = URL(address if "://" in address else f"http://{address}")
    except ValueError:
        # The reason would quote what may be a part of a password.
        raise UsageError(
            f"the proxy set in the environment for {url.scheme}:// is no address: http://host:port, where "
            "signs of a password such as / and @ are written %2F and %40. Correct it, or name the host in "
            "NO_PROXY."
        ) from None
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise UsageError(
            f"the proxy set in the environment for {url.scheme}:// ({proxy.scheme}://{proxy.host}) cannot be "
            "used: only http:// and https:// proxies are. Set another, or name the host in NO_PROXY."
        )
    return proxy


def redirected_by(*names: str, scheme: str = "") -> str:
    """The address in the first of these variables that is set, by which providers' own clients are led away
    from where the provider is; "" where none is. One without a scheme is given ``scheme``, if there is one.

    Raises
    ------
    UsageError
        it is no http(s) address.
    """
    name = next((name for name in names if os.environ.get(name, "").strip()), None)
    if name is None:
        return ""
    address = os.environ[name].strip().rstrip("/")
    if scheme and "://" not in address:
        address = f"{scheme}://{address}"
    try:
        url = URL(address)
        usable = url.scheme in ("http", "https") and bool(url.host) and url.user is None
    except ValueError:
        usable = False
    if not usable:  # it is not quoted: it may hold a password
        raise UsageError(
            f"{name} in the environment is no http:// or https:// address; correct it or unset it"
        )
    return address


def trusted_certificates() -> ssl.SSLContext | bool:
    """The certificate bundle of ``REQUESTS_CA_BUNDLE`` or ``CURL_CA_BUNDLE``; True means the default.

    ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` are part of the default: OpenSSL reads them.
    """
    for name in _BUNDLES:
        bundle = os.environ.get(name)
        if not bundle:
            continue
        path = Path(bundle)
        try:
            if path.is_dir():
                return ssl.create_default_context(capath=bundle)
            return ssl.create_default_context(cafile=bundle)
        except OSError as error:
            raise UsageError(
                f"{name}={bundle} is no usable certificate bundle ({error.strerror or error}); "
                "correct it or unset it"
            ) from error
    return True


def trust_in_force() -> str:
    """Which variables of the environment say whose certificates are trusted, as ``NAME=path``; "" if none."""
    set_here = [name for name in _BUNDLES if os.environ.get(name)][:1]
    set_here = set_here or [name for name in _OPENSSLS if os.environ.get(name)]
    return " and ".join(_with_path(name) for name in set_here)


def _with_path(name: str) -> str:
    path = os.environ[name]
    # OpenSSL passes over what is not there, and trusts nobody.
    return f"{name}={path}" if Path(path).exists() else f"{name}={path} (which does not exist)"


def raise_open_file_limit() -> None:
    """Let the process hold a socket per request in flight: the usual soft limit of 1,024 is too few."""
    if sys.platform == "win32":
        return
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
