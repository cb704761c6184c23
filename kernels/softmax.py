"""Row softmax, fused: each value is read once and written once while a row fits in one tile.

    y_i  = exp(x_i - max x) / sum_j exp(x_j - max x)
    dx_i = y_i * (dy_i - sum_j dy_j * y_j)

Rows longer than a tile are walked twice. The first walk keeps a running maximum m and a running sum s of
exp(x - m), rescaling s whenever m grows (Milakov and Gimelshein, "Online normalizer calculation for
softmax", 2018, arXiv:1805.02867); the second writes. Arithmetic is float32 whatever the storage. As in
torch, a NaN or +inf anywhere makes its row NaN, and so does a row that is -inf throughout.
"""

import torch
import triton
import triton.language as tl

LONGEST_TILE = 32768  # values a program holds: 32 registers a thread with 32 warps, of the 64 it may have


@triton.jit
def forward_kernel(
    x_ptr, y_ptr, rows, cols, x_row, x_col, y_row, ROWS: tl.constexpr, COLS: tl.constexpr, WHOLE: tl.constexpr
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    col = tl.arange(0, COLS)[None, :]
    x_ptr += row * x_row
    y_ptr += row * y_row
    if WHOLE:
        mask = (row < rows) & (col < cols)
        x = tl.load(x_ptr + col * x_col, mask, other=float("-inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, 1)[:, None])
        y = e * (1.0 / tl.sum(e, 1))[:, None]  # one division a row, not one a value
        tl.store(y_ptr + col, y.to(y_ptr.dtype.element_ty), mask)
    else:
        m = tl.full((ROWS,), float("-inf"), tl.float32)
        s = tl.zeros((ROWS,), tl.float32)
        for start in range(0, cols, COLS):
            mask = (row < rows) & (start + col < cols)
            x = tl.load(x_ptr + (start + col) * x_col, mask, other=float("-inf")).to(tl.float32)
            grown = tl.maximum(m, tl.max(x, 1))
            # nothing but -inf so far: -inf - -inf would be NaN
            m_new = tl.where(grown == float("-inf"), 0.0, grown)
            s = s * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new[:, None]), 1)
            m = m_new
        scale = 1.0 / s
        for start in range(0, cols, COLS):
            mask = (row < rows) & (start + col < cols)
            x = tl.load(x_ptr + (start + col) * x_col, mask, other=float("-inf")).to(tl.float32)
            y = tl.exp(x - m[:, None]) * scale[:, None]
            tl.store(y_ptr + start + col, y.to(y_ptr.dtype.element_ty), mask)


@triton.jit
def backward_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    rows,
    cols,
    y_row,
    dy_row,
    dy_col,
    dx_row,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    col = tl.arange(0, COLS)[None, :]
    y_ptr += row * y_row
    dy_ptr += row * dy_row
    dx_ptr += row * dx_row
    if WHOLE:
        mask = (row < rows) & (col < cols)
        y = tl.load(y_ptr + col, mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + col * dy_col, mask, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, 1)[:, None])
        tl.store(dx_ptr + col, dx.to(dx_ptr.dtype.element_ty), mask)
    else:
        dot = tl.zeros((ROWS,), tl.float32)
        for start in range(0, cols, COLS):
            mask = (row < rows) & (start + col < cols)
            y = tl.load(y_ptr + start + col, mask, other=0.0).to(tl.float32)
            dy = tl.load(dy_ptr + (start + col) * dy_col, mask, other=0.0).to(tl.float32)
            dot += tl.sum(y * dy, 1)
        for start in range(0, cols, COLS):
            mask = (row < rows) & (start + col < cols)
            y = tl.load(y_ptr + start + col, mask, other=0.0).to(tl.float32)
            dy = tl.load(dy_ptr + (start + col) * dy_col, mask, other=0.0).to(tl.float32)
            dx = y * (dy - dot[:, None])
            tl.store(dx_ptr + start + col, dx.to(dx_ptr.dtype.element_ty), mask)


def tile(cols: int, longest: int = LONGEST_TILE) -> dict:
    """Launch settings for rows of `cols` values: short rows share a program, long rows take it in pieces."""
    whole = cols <= longest
    width = triton.next_power_of_2(cols) if whole else longest // 2
    height = max(1, 2048 // width)
    warps = min(32, max(4, height * width // 1024))
    return {"ROWS": height, "COLS": width, "WHOLE": whole, "num_warps": warps}


def _rows(t: torch.Tensor) -> torch.Tensor:
    t = t.reshape(-1, t.shape[-1])  # a view wherever the leading strides allow one
    # column offsets are 32-bit; a transposed giant is copied
    return t if t.shape[1] * t.stride(1) < 2**31 else t.contiguous()


def forward(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension; `x` [..., cols] of float32, bfloat16 or float16, any strides."""
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise TypeError(f"softmax takes float32, bfloat16 or float16, not {x.dtype}")
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        x2, y2 = _rows(x), _rows(y)
        launch = tile(x.shape[-1])
        grid = (triton.cdiv(x2.shape[0], launch["ROWS"]),)
        forward_kernel[grid](x2, y2, *x2.shape, *x2.stride(), y2.stride(0), **launch)
    return y


def backward(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """Gradient of the input, given the output `y` [..., cols] (contiguous) and its gradient `dy`."""
    dx = torch.empty_like(y)
    if y.numel():
        y2, dy2, dx2 = _rows(y), _rows(dy), _rows(dx)
        launch = tile(y.shape[-1])
        grid = (triton.cdiv(y2.shape[0], launch["ROWS"]),)
        backward_kernel[grid](y2, dy2, dx2, *y2.shape, y2.stride(0), *dy2.stride(), dx2.stride(0), **launch)
    return dx


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return backward(y, dy)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension."""
    return Softmax.apply(x)


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


def bytes_moved(rows: int, cols: int, itemsize: int, backward: bool = False) -> int:
    """Least traffic with device memory: read x, write y; backward reads y and dy, writes dx."""
    return (3 if backward else 2) * rows * cols * itemsize


def flops(rows: int, cols: int, backward: bool = False) -> int:
    """Subtract, exp (counted as one), add, divide and the maximum's compare; backward 2 + 2 a value."""
    return (4 if backward else 5) * rows * cols
