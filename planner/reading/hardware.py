"""Server models by name: those written in the input beside those of the shipped catalogue.

Promises: a slug finds one model; the catalogue is opened only when a name is not inline.
Called by the builder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from models.documents import ClusterDocument, similar, suggestion
from models.hardware import ServerModel, slug
from models.quantities import shown
from planner.reading.validating import Entry

Find = Callable[[str], ServerModel | None]


def shipped(name: str) -> ServerModel | None:
    """A model of the catalogue."""
    from models import catalogue  # opened only when something asks for it

    return catalogue.find(name)


def nothing(_: str) -> ServerModel | None:
    """The catalogue of an instance that is complete in itself."""
    return None


@dataclass(slots=True)
class Hardware:
    """Models known to one reading. ``find``: the catalogue behind the inline ones."""

    find: Find
    inline: dict[str, ServerModel] = field(default_factory=dict)
    incomplete: bool = False
    found: dict[str, ServerModel | None] = field(default_factory=dict)

    def add(self, entry: Entry[ClusterDocument]) -> None:
        """Register the inline models of a Cluster; report those that clash."""
        if entry.lacks("spec", "serverModels"):
            self.incomplete = True
        own: set[str] = set()
        for i, document in enumerate(entry.document.spec.server_models):
            if document.complaints():
                self.incomplete = True
                continue
            model = document.to_server_model()
            for text in model.slugs:
                if (clash := self._clash(text, model, own)) is not None:
                    entry.fault(
                        ("spec", "serverModels", i, "name"),
                        f"server model {shown(model.name)} differs from {clash},"
                        f" which is also found as {shown(text)}",
                        "give it another name, and another alias",
                    )
                    break
                own.add(text)
                self.inline.setdefault(text, model)

    def _clash(self, text: str, model: ServerModel, own: set[str]) -> str | None:
        """The other model that a slug finds already, unless its document reports that itself."""
        if text in own:
            return None
        if (other := self.inline.get(text)) is not None and other != model:
            return f"{shown(other.name)} of another Cluster"
        if (other := self.find(text)) is not None and other != model:
            return f"{shown(other.name)} of the catalogue"
        return None

    def model(self, name: str) -> ServerModel | None:
        """The model of a name or alias, inline first."""
        if name not in self.found:
            self.found[name] = self.inline.get(slug(name)) or self.find(name)
        return self.found[name]

    def hint(self, name: str) -> str:
        """What a name that finds nothing may have meant."""
        names = {model.name for model in self.inline.values()}
        aliases: set[str] = set()
        if self.find is not nothing:
            from models import catalogue  # as in shipped()

            for model in catalogue.server_models():
                names.add(model.name)
                aliases.update(model.aliases)
        near = similar(name, names) or similar(name, aliases)
        if near:
            return f"did you mean {' or '.join(shown(model) for model in near)}?"
        return suggestion(name, names, "server models")
