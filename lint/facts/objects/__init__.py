"""What objects hold and how they get it: attributes, elements, children of modules, parsed arguments."""
