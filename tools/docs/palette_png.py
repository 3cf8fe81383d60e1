"""A screenshot as a small PNG: 256 colours, so that pictures of a gallery weigh tens of kilobytes."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Page

_PIXELS = """async (source) => {
  const image = await createImageBitmap(await (await fetch(source)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  let text = "";
  for (let at = 0; at < data.length; at += 32768) {
    text += String.fromCharCode(...data.subarray(at, at + 32768));
  }
  return [image.width, image.height, btoa(text)];
}"""
_COLOURS = 256


def small_png(page: Page, png: bytes) -> bytes:
    """``page`` is a blank one, whose browser decodes the picture."""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    width, height, pixels = page.evaluate(_PIXELS, source)
    rgb = np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(height, width, 4)[:, :, :3]
    palette, indices = _in_palette(rgb)
    lines = np.hstack([np.zeros((height, 1), np.uint8), indices])  # filter 0: areas of one colour repeat
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, content)
        for kind, content in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            (b"PLTE", palette.tobytes()),
            (b"IDAT", zlib.compress(lines.tobytes(), 9)),
            (b"IEND", b""),
        )
    )


def _in_palette(rgb: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The commonest colours as they are, so that no background changes its shade, and for each pixel the
    nearest of them."""
    packed = (rgb.astype(np.uint32) * (65536, 256, 1)).sum(axis=2).astype(np.uint32)
    found, places, counts = np.unique(packed, return_inverse=True, return_counts=True)
    colours, palette = _channels(found), _channels(found[np.argsort(counts)[::-1][:_COLOURS]])
    nearest = np.empty(len(found), np.uint8)
    for start in range(0, len(found), 4096):
        part = colours[start : start + 4096, None].astype(np.int32) - palette[None].astype(np.int32)
        nearest[start : start + 4096] = (part**2).sum(axis=2).argmin(axis=1)
    return palette, nearest[places].reshape(packed.shape)


def _channels(packed: NDArray[np.uint32]) -> NDArray[np.uint8]:
    return np.stack([packed >> 16 & 255, packed >> 8 & 255, packed & 255], axis=1).astype(np.uint8)


def _chunk(kind: bytes, content: bytes) -> bytes:
    checked = kind + content
    return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))
