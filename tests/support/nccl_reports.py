"""Reports in the form of NVIDIA's nccl-tests (2.13 to 2.17), with given values; the titles of the columns are cut."""


def render_all_reduce(*, gpus=8, average="478.125", wrong="0", groups=True):
    """The report of `all_reduce_perf -b 1G -e 2G -f 2 -g GPUS`."""
    group = " Group  0" if groups else ""
    ranks = [
        f"#  Rank  {rank}{group} Pid    412 on     node-1 device  {rank} [0x{rank + 27:02x}] NVIDIA H100 80GB HBM3"
        for rank in range(gpus)
    ]
    last = wrong if wrong.isdigit() else "0"
    times = ("3911.5  274.51  480.40", "3925.0  273.56  478.74")
    rows = [
        f"  {size}     {size // 4}     float     sum      -1   {times[0]} {count:>6}   {times[1]} {count:>6}"
        for size, count in ((1 << 30, wrong), (1 << 31, "0"))
    ]
    return "\n".join(
        (
            f"# nThread 1 nGpus {gpus} minBytes 1073741824 maxBytes 2147483648 step: 2(factor) warmup iters: 5",
            "#",
            "# Using devices",
            *ranks,
            "#",
            "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw",
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)",
            *rows,
            f"# Out of bounds values : {last} {'OK' if last == '0' else 'FAILED'}",
            f"# Avg bus bandwidth    : {average}",
            "#",
            "",
        )
    )
