"""Programs that write or check parts of the source; none is part of the package that users install."""
