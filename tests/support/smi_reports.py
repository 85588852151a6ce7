"""Reports of nvidia-smi, written by tests from facts: only the elements that are read."""

from xml.sax.saxutils import escape, quoteattr

from upgrader.node.validation.gpu_report import GpuFacts

HEAD = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'


def render_report(version, gpus):
    """The output of `nvidia-smi -q -x`."""
    body = "".join(_render_gpu(gpu) for gpu in gpus)
    return f"{HEAD}<nvidia_smi_log>{_element('driver_version', version)}{body}</nvidia_smi_log>\n"


def render_links(states):
    """The output of `nvidia-smi nvlink -s`, of states by UUID and number of the link."""
    lines = []
    for index, (uuid, links) in enumerate(states.items()):
        lines.append(f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: {uuid})\n")
        lines += [f"\t Link {number}: {state}\n" for number, state in links.items()]
    return "".join(lines)


def make_gpu(uuid="GPU-aaaa", address="0000:00:00.0", **changes):
    """Facts about a healthy GPU with an NVSwitch fabric."""
    facts = {
        "model": "NVIDIA H100 80GB HBM3",
        "width": "16x",
        "max_width": "16x",
        "uncorrected": {"sram_uncorrectable": "0", "dram_uncorrectable": "0"},
        "remap_pending": "No",
        "remap_failure": "No",
        "mig": "Disabled",
        "fabric_state": "Completed",
        "fabric_status": "Success",
        "power_limit": "700.00 W",
        "default_power_limit": "700.00 W",
    }
    return GpuFacts(uuid=uuid, address=address, **{**facts, **changes})


def _render_gpu(gpu):
    domain, _, rest = gpu.address.partition(":")
    errors = "".join(_element(name, value) for name, value in gpu.uncorrected.items())
    parts = [
        _element("product_name", gpu.model),
        f"<mig_mode>{_element('current_mig', gpu.mig)}</mig_mode>",
        f"<mig_devices>{'<mig_device></mig_device>' * gpu.mig_devices or 'None'}</mig_devices>",
        _element("uuid", gpu.uuid),
        "<pci><pci_gpu_link_info><link_widths>",
        _element("max_link_width", gpu.max_width) + _element("current_link_width", gpu.width),
        "</link_widths></pci_gpu_link_info></pci>",
        f"<ecc_errors><volatile>{errors}</volatile></ecc_errors>",
        f"<retired_pages>{_element('pending_retirement', gpu.retirement_pending)}</retired_pages>",
        "<remapped_rows>",
        _element("remapped_row_pending", gpu.remap_pending) + _element("remapped_row_failure", gpu.remap_failure),
        "</remapped_rows>",
        "<gpu_power_readings>",
        _element("requested_power_limit", gpu.power_limit) + _element("default_power_limit", gpu.default_power_limit),
        "</gpu_power_readings>",
        f"<fabric>{_element('state', gpu.fabric_state)}{_element('status', gpu.fabric_status)}</fabric>",
    ]
    return f"<gpu id={quoteattr(f'{domain:0>8}:{rest}'.upper())}>{''.join(parts)}</gpu>"


def _element(name, text):
    return f"<{name}>{escape(text or 'N/A')}</{name}>"
