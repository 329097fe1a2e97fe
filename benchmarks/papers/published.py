"""The numbers that the papers print, as far as they are text: pictures have none."""

from __future__ import annotations

BUDGETS_GIB = (5, 6, 7, 8, 9, 10)
"""Of MONeT's experiments (section 5)."""

NETWORKS = {
    "resnet50": "ResNet-50",
    "googlenet": "GoogleNet",
    "unet": "UNet",
    "vgg16": "VGG-16",
    "mobilenet_v2": "MobileNet-V2",
}
"""Of MONeT's tables, with the names there."""

MEMORY_AT_TEN_PER_CENT_GB = {
    "resnet50": (15.1, 8.2, 5.7),
    "googlenet": (14.9, 10.5, 6.9),
    "unet": (14.3, 9.1, 5.2),
    "vgg16": (14.1, 9.9, 5.5),
    "mobilenet_v2": (14.5, 5.8, 4.8),
}
"""MONeT, Table 1: PyTorch, Checkmate, MONeT."""

MEASURED_CURVES = {
    "resnet50": ((15.06, 0.0), (10.01, 3.22), (9.01, 4.68), (8.01, 5.56), (6.99, 7.28), (6.00, 9.31), (4.99, 11.95)),
    "googlenet": ((14.93, 0.0), (9.98, 7.13), (8.99, 7.87), (8.01, 8.44), (7.02, 9.71), (6.01, 12.14), (4.99, 15.77)),
    "unet": ((14.32, 0.0), (10.01, -4.10), (9.01, -2.07), (8.02, -0.09), (7.00, 1.39), (6.01, 4.95), (5.01, 11.51)),
    "mobilenet_v2": ((14.46, 0.0), (10.02, 2.40), (9.01, 3.10), (8.02, 4.77), (7.01, 5.53), (6.01, 7.55), (5.01, 8.72)),
    "vgg16": ((14.12, 0.0), (9.71, -5.30), (8.66, -4.64), (7.88, -2.18), (6.82, 1.99), (5.90, 5.44), (5.51, 9.11)),
}
"""MONeT, Figure 3, as the README of its code has it: GB and overhead in per cent, measured on a P100."""

OBJECTIVES_MS = {
    "resnet50": (981.60, 961.05, 941.74, 925.22, 915.42, 905.17),
    "unet": (1287.23, 1216.17, 1172.10, 1154.05, 1133.63, 1109.33),
    "vgg16": (1540.23, 1491.29, 1438.66, 1383.33, 1329.17),
}
"""What MONeT's authors published with their instances: the objectives at ``SOLVED_GIB``."""

ASKED_GIB = {**dict.fromkeys(NETWORKS, (10, 9, 8, 7, 6, 5)), "vgg16": (10, 9, 8, 7, 6, 5.5)}
"""The budgets whose measured peaks Figure 3 has, PyTorch's aside."""

SOLVED_GIB = {"resnet50": (5, 6, 7, 8, 9, 10), "unet": (5, 6, 7, 8, 9, 10), "vgg16": (5.5, 6, 7, 8, 9)}
"""The budgets of the published objectives."""

N = None
HOURS_TO_FIVE_PER_CENT = {
    "resnet50": ((N, 8.96, 12.01, 10.78, 4.54, 2.98), (1.18, 0.46, 0.14, 0.09, 0.06, 0.07), (7.24, 3.84, 0.73, 0.70, 0.31, 0.11)),
    "googlenet": ((N, 12.72, 4.56, 4.32, 3.92, 0.86), (0.10, 0.11, 0.07, 0.07, 0.07, 0.07), (3.53, 0.47, 0.54, 0.31, 0.25, 0.24)),
    "mobilenet_v2": ((2.16, 2.88, 1.16, 0.29, 0.34, 0.14), (0.11, 0.04, 0.02, 0.02, 0.04, 0.08), (0.37, 0.28, 0.52, 0.05, 0.06, 0.03)),
    "unet": ((0.149, 0.031, 0.022, 0.020, 0.010, 0.009), (0.048, 0.002, 0.002, 0.002, 0.002, 0.002), (0.363, 0.064, 0.028, 0.027, 0.024, 0.006)),
    "vgg16": ((N, N, N, 0.002, 0.002, 0.001), (N, N, N, 0.001, 0.000, 0.000), (N, 0.003, 0.003, 0.003, 0.003, 0.003)),
}  # fmt: skip
"""MONeT, Tables 2 and 5: Checkmate, MONeT-NoOp, MONeT at 5 to 10 GB; None: never reached."""

HOURS_TO_TWO_PER_CENT = {
    "resnet50": ((N, 16.44, 13.43, 11.91, 5.74, 3.81), (N, 2.06, 1.28, 0.16, 0.08, 0.07), (N, N, 12.64, 3.00, 3.60, 0.62)),
    "googlenet": ((N, 15.08, 4.93, 5.04, 3.92, 0.90), (0.10, 0.11, 0.07, 0.07, 0.07, 0.07), (N, 5.47, 5.34, 0.31, 0.25, 0.24)),
    "mobilenet_v2": ((2.16, 2.88, 1.16, 0.29, 0.34, 0.14), (0.43, 0.37, 0.02, 0.02, 0.10, 0.09), (9.49, 5.33, 1.53, 0.14, 0.18, 0.05)),
    "unet": ((0.243, 0.031, 0.027, 0.021, 0.011, 0.009), (0.181, 0.003, 0.003, 0.002, 0.002, 0.002), (5.001, 0.204, 0.164, 0.069, 0.083, 0.027)),
    "vgg16": ((N, N, N, 0.003, 0.002, 0.001), (N, N, N, 0.001, 0.000, 0.000), (N, 0.004, 0.006, 0.004, 0.003, 0.003)),
}  # fmt: skip
"""MONeT, Table 6, likewise."""

GIST = {
    "vgg16": (176, 0.76, 44.34, 0.39, 9.11),
    "resnet50": (184, 0.58, 105.69, 0.33, 11.94),
    "googlenet": (320, 0.52, 35.94, 0.33, 15.77),
    "mobilenet_v2": (256, 0.69, 153.98, 0.34, 8.80),
    "unet": (11, 0.73, 38.26, 0.35, 11.51),
}
"""MONeT, Table 3: batch, Gist's memory ratio and overhead in per cent, MONeT's."""

PROGRAM_SIZES = {
    "googlenet": (215, 719_327, 519_252, 221_630, 104_673, 781_747, 362_640),
    "resnet50": (175, 473_592, 344_659, 344_652, 167_238, 487_842, 229_431),
    "mobilenet_v2": (153, 337_316, 247_033, 153_828, 74_579, 241_478, 115_047),
    "unet": (67, 65_715, 48_744, 32_273, 15_982, 73_624, 36_548),
    "vgg16": (40, 25_334, 18_968, 12_772, 6_306, 21_918, 11_234),
}
"""MONeT, Table 7: forward operators, then constraints and variables of Checkmate, MONeT-NoOp and MONeT at 10 GB."""

VOLUME_NETWORK = ((0.54, 8.86), (0.81, 0.0))
"""MONeT, appendix J and Figure 8: memory ratio and overhead in per cent of the 3D-UNet."""

ALEXNET_GB = (0.5618, 0.4783)
"""MODeL, the README of its code: AlexNet at a batch of 32, PyTorch's peak and what the order leaves."""

ORDER_SAVES = {1: 0.239, 32: 0.117}
"""MODeL, section 5.5: the average reduction by the order of operators alone, by batch."""
FRAGMENTATION = {1: 0.078, 32: 0.213}
"""MODeL, section 5.4: PyTorch's average fragmentation, by batch."""
BOTH_SAVE = {1: 0.314, 32: 0.328}
"""MODeL, section 5.3: the average of both, by batch."""
ORDER_SECONDS = (0.1, 7.4, 18.1)
"""MODeL, section 5.3: least, average and longest time of the optimization."""

ROTOR_SECONDS = 20.0
"""rotor, section 5.2: below that for a chain of 339 stages and 500 slots."""
RESNET_1001 = (225, 1.1)
"""rotor, of Figure 4: GiB and pictures/s of PyTorch at a batch of 8, by its tool's estimate."""
ROTOR_GAIN = 0.172
"""rotor, section 5.4: throughput over the best of ``sequential`` at the same memory, on average of all experiments."""


def pytorch_times_ms(network: str) -> tuple[float, ...]:
    """How long PyTorch's step took on their P100 by each published objective: that, over one and the overhead measured.

    The same at every budget (``findings.of_pytorch`` says how far), as it must be if what they simulated is what they
    measured.
    """
    overheads = dict(zip(ASKED_GIB[network], (y for _, y in MEASURED_CURVES[network][1:]), strict=True))
    solved = zip(SOLVED_GIB[network], OBJECTIVES_MS[network], strict=True)
    return tuple(ms / (1 + overheads[gib] / 100) for gib, ms in solved)


def pytorch_ms(network: str) -> float:
    """The median of these: they did not print it."""
    found = sorted(pytorch_times_ms(network))
    return found[len(found) // 2]
