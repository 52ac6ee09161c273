"""Reads the YAML files of this folder, validates Kubernetes' own kinds against its published schemas, and prints all
documents as JSON, by file. Run by tests/tests/it/deploy.rs, which checks the rest. Needs pyyaml and kubernetes-validate;
exits with 3 if they are not installed."""

import json
import pathlib
import sys

try:
    import kubernetes_validate
    import yaml
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(3)

VERSION = "1.33"


class Once(yaml.SafeLoader):
    """Loads YAML and rejects duplicate keys: the last one would silently win."""


def mapping(loader, node, deep=False):
    keys = [loader.construct_object(key, deep=deep) for key, _ in node.value]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        raise ValueError(f"{twice} twice at {node.start_mark}")
    return yaml.SafeLoader.construct_mapping(loader, node, deep)


Once.add_constructor(
    yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG,
    lambda loader, node: mapping(loader, node, deep=True),
)

folder = pathlib.Path(sys.argv[1])
found = {}
for path in sorted(folder.rglob("*.y*ml")):
    documents = list(yaml.load_all(path.read_text(), Loader=Once))
    found[str(path.relative_to(folder))] = documents
    for document in documents:
        api = document.get("apiVersion", "")
        # Kubernetes' schemas do not include KEDA's kinds.
        if api and not api.startswith("keda.sh/"):
            kubernetes_validate.validate(document, VERSION, strict=True)
json.dump(found, sys.stdout)
