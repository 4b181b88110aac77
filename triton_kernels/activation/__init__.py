"""An activation of every element, by name, and its backward."""
