"""Amazon S3, as far as batches use it: objects whole or in parts, lists by prefix, signed requests.

After the service model that botocore carries and S3's reference. A signature is made again, by botocore's
signer, of what arrived; `boto3` drives it in a test.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import md5, sha256
from itertools import count
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from aiohttp import web
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from fakes.scripted import listening

__all__ = ["S3Host", "fake_s3"]

_LEAST_PART = 5 << 20
_PAGE = 2
_XMLNS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


@dataclass
class S3Host:
    """``keys`` are access key ids with their secrets. ``objects`` by bucket and key; ``uploads`` are those in
    parts that are not completed. ``lost`` answers are those to the next parts, which are kept. What the next
    completion comes to stands in ``completes``: S3 may say 200 and then an error. Lists are pages of two."""

    keys: Mapping[str, str]
    session_token: str | None = None
    region: str = "us-east-1"
    url: str = ""
    buckets: set[str] = field(default_factory=lambda: {"results-4711"})
    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    most_bytes: int = 5 << 30
    lost: int = 0
    completes: str = ""
    asked: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    async def handle(self, request: web.Request) -> web.Response:
        content = await request.read()
        bucket, key = request.match_info["bucket"], request.match_info.get("key", "")
        self.asked.append(f"{request.method} {request.rel_url.path}")
        why = self._stranger(request, content)
        if why is not None:
            return _error(403, *why)
        if bucket not in self.buckets:
            return _error(404, "NoSuchBucket", "The specified bucket does not exist")
        if len(content) > self.most_bytes:
            return _error(400, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
        query = request.query
        match request.method:
            case "GET" if not key:
                return self._list(bucket, query)
            case "GET" | "HEAD":
                found = self.objects.get((bucket, key))
                missing = _error(404, "NoSuchKey", "The specified key does not exist.")
                return missing if found is None else web.Response(body=found)
            case "PUT" if "uploadId" in query:
                return self._part(request, int(query["partNumber"]), query["uploadId"], content)
            case "PUT":
                self.objects[bucket, key] = content
                return web.Response(headers={"ETag": _etag(content)})
            case "POST" if "uploads" in query:
                upload = f"upload-{next(self.numbers)}"
                self.uploads[upload] = {}
                told = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
                return _xml("InitiateMultipartUploadResult", told)
            case "POST" if "uploadId" in query:
                return self._complete(bucket, key, query["uploadId"], content)
            case "DELETE" if "uploadId" in query:
                self.uploads.pop(query["uploadId"], None)
                return web.Response(status=204)
            case _:
                return _error(405, "MethodNotAllowed", "The specified method is not allowed.")

    def _part(self, request: web.Request, number: int, upload: str, content: bytes) -> web.Response:
        if upload not in self.uploads:
            return _error(404, "NoSuchUpload", "The specified multipart upload does not exist.")
        self.uploads[upload][number] = content
        if self.lost:
            self.lost -= 1
            assert request.transport is not None
            request.transport.close()
        return web.Response(headers={"ETag": _etag(content)})

    def _complete(self, bucket: str, key: str, upload: str, content: bytes) -> web.Response:
        if self.completes:
            words, self.completes = self.completes, ""
            said = f"<Error><Code>{words}</Code><Message>We encountered an internal error.</Message></Error>"
            return web.Response(text=said, content_type="application/xml")
        if upload not in self.uploads:
            return _error(404, "NoSuchUpload", "The specified multipart upload does not exist.")
        parts = self.uploads[upload]
        listed: list[tuple[int, str]] = []
        for part in ElementTree.fromstring(content):  # noqa: S314  from the client under test
            named = {child.tag.rpartition("}")[2]: child.text or "" for child in part}
            listed.append((int(named["PartNumber"]), named["ETag"].strip('"')))
        if [number for number, _ in listed] != sorted(parts):
            return _error(400, "InvalidPartOrder", "The list of parts was not in ascending order.")
        if any(_etag(parts[number]).strip('"') != etag for number, etag in listed):
            return _error(400, "InvalidPart", "One or more of the specified parts could not be found.")
        if any(len(parts[number]) < _LEAST_PART for number, _ in listed[:-1]):
            return _error(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed")
        self.objects[bucket, key] = b"".join(parts[number] for number, _ in listed)
        del self.uploads[upload]
        return _xml("CompleteMultipartUploadResult", f"<Key>{escape(key)}</Key><ETag>&quot;e&quot;</ETag>")

    def _list(self, bucket: str, query: Mapping[str, str]) -> web.Response:
        if query.get("list-type") != "2":
            return _error(400, "InvalidArgument", "Only lists of the second kind are served.")
        prefix = query.get("prefix", "")
        keys = sorted(key for place, key in self.objects if place == bucket and key.startswith(prefix))
        start = int(query.get("continuation-token", 0))
        shown = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[bucket, key])}</Size></Contents>"
            for key in keys[start : start + _PAGE]
        )
        more = start + _PAGE < len(keys)
        token = f"<NextContinuationToken>{start + _PAGE}</NextContinuationToken>" if more else ""
        told = f"<Name>{bucket}</Name><IsTruncated>{str(more).lower()}</IsTruncated>{token}{shown}"
        return _xml("ListBucketResult", told)

    def _stranger(self, request: web.Request, content: bytes) -> tuple[str, str] | None:
        """Why whoever signed may not ask."""
        headers = request.headers
        signed = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([\w-]+)/s3/aws4_request, "
            r"SignedHeaders=([\w;-]+), Signature=([0-9a-f]{64})",
            headers.get("Authorization", ""),
        )
        if signed is None:
            return "AccessDenied", "Access Denied"
        key, _, region, names, signature = signed.groups()
        if key not in self.keys or headers.get("X-Amz-Security-Token") != self.session_token:
            return "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."
        if region != self.region:
            return (
                "AuthorizationHeaderMalformed",
                f"the region '{region}' is wrong; expecting '{self.region}'",
            )
        said = headers.get("X-Amz-Content-SHA256", "")
        if said not in (sha256(content).hexdigest(), "UNSIGNED-PAYLOAD"):
            return "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match."
        if self._signature(request, key, names.split(";")) != signature:
            return "SignatureDoesNotMatch", "The request signature we calculated does not match."
        return None

    def _signature(self, request: web.Request, key: str, names: list[str]) -> str:
        url = f"http://{request.headers['Host']}{request.raw_path}"
        headers = {name: request.headers[name] for name in names}
        arrived = AWSRequest(method=request.method, url=url, headers=headers)
        arrived.context["timestamp"] = request.headers["X-Amz-Date"]
        auth = S3SigV4Auth(Credentials(key, self.keys[key]), "s3", self.region)
        told: Any = auth.signature(auth.string_to_sign(arrived, auth.canonical_request(arrived)), arrived)
        return str(told)


def _etag(content: bytes) -> str:
    return f'"{md5(content).hexdigest()}"'  # noqa: S324  as S3 makes them


def _xml(root: str, told: str) -> web.Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} {_XMLNS}>{told}</{root}>'
    return web.Response(text=text, content_type="application/xml")


def _error(status: int, code: str, message: str) -> web.Response:
    text = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    return web.Response(text=text, status=status, content_type="application/xml")


@asynccontextmanager
async def fake_s3(keys: Mapping[str, str], **how: Any) -> AsyncIterator[S3Host]:
    """Serve on loopback; ``how`` are fields of the host."""
    host = S3Host(keys, **how)
    app = web.Application(client_max_size=1 << 28)
    app.router.add_route("*", "/{bucket}", host.handle)
    app.router.add_route("*", "/{bucket}/", host.handle)
    app.router.add_route("*", "/{bucket}/{key:.+}", host.handle)
    async with listening(app) as url:
        host.url = url
        yield host
