"""Time `import vsam` beyond torch's own import: CPU time in fresh processes, medians.

python benchmarks/import_time.py [RUNS]
"""

import json
import statistics
import subprocess
import sys

PROGRAM = """
import json, sys, time
import torch
start = time.process_time()
import vsam
package = time.process_time()
vsam.VSAM
method = time.process_time()
for name in vsam.__all__:
    getattr(vsam, name)
print(json.dumps([1000 * (end - start) for end in (package, method, time.process_time())]))
"""


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    times = [json.loads(subprocess.check_output([sys.executable, "-c", PROGRAM])) for _ in range(runs)]
    names = ("import vsam", "and vsam.VSAM", "and every public name")
    for name, found in zip(names, zip(*times, strict=True), strict=True):
        print(f"{name:22} {statistics.median(found):6.1f} ms of CPU time beyond torch (best {min(found):.1f})")


if __name__ == "__main__":
    main()
