// What a CPU build of PyTorch leaves out of the headers of its CUDA part: how that was built.
#pragma once
