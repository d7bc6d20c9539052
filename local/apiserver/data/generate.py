#!/usr/bin/env python3
"""Makes builtin.json: the schemas of the built-in kinds this server speaks.

  generate.py _definitions.json > builtin.json

The input is the `definitions` of Kubernetes' published OpenAPI document, v1.36, with its `x-kubernetes-*`
extensions. The Python package `kubernetes-validate` (Apache-2.0) ships it as
`kubernetes_validate/kubernetes-json-schema/v1.36.0-local/_definitions.json`.

Kept: types, formats, enums, required fields, defaults, list and map types, patch strategies. Dropped:
descriptions, and every definition that no kind below reaches. One definition a line, so that a diff between
two versions can be read.
"""
import json
import sys

KINDS = {
    "admissionregistration.k8s.io": ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
    "": ["Binding", "ConfigMap", "Endpoints", "Event", "LimitRange", "Namespace", "Node", "PersistentVolume",
         "PersistentVolumeClaim", "Pod", "PodTemplate", "ReplicationController", "ResourceQuota", "Secret", "Service",
         "ServiceAccount"],
    "apiextensions.k8s.io": ["CustomResourceDefinition"],
    "apps": ["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
    "authentication.k8s.io": ["SelfSubjectReview", "TokenRequest", "TokenReview"],
    "authorization.k8s.io": ["LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview",
                             "SubjectAccessReview"],
    "autoscaling": ["HorizontalPodAutoscaler", "Scale"],
    "batch": ["CronJob", "Job"],
    "coordination.k8s.io": ["Lease"],
    "discovery.k8s.io": ["EndpointSlice"],
    "events.k8s.io": ["Event"],
    "networking.k8s.io": ["Ingress", "IngressClass", "NetworkPolicy"],
    "policy": ["Eviction", "PodDisruptionBudget"],
    "rbac.authorization.k8s.io": ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    "scheduling.k8s.io": ["PriorityClass"],
    "storage.k8s.io": ["StorageClass"],
}
VERSIONS = {"v1", "v2"}
KEEP = {"type", "format", "enum", "required", "default", "items", "properties", "additionalProperties", "$ref",
        "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
        "x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy", "x-kubernetes-group-version-kind"}
# The published document leaves these defaults out, and keys of lists need them.
DEFAULTS = {
    ("io.k8s.api.core.v1.ContainerPort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.ServicePort", "protocol"): "TCP",
}
# Scalars that are written as more than one JSON type, and places that hold anything.
SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"format": "quantity", "x-kubernetes-int-or-string": True},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": True},
}
ANYTHING = {
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
}


def slim(schema):
    out = {}
    for key, value in schema.items():
        if key not in KEEP:
            continue
        if key == "type" and isinstance(value, list):
            value = [t for t in value if t != "null"][0]
        elif key == "$ref":
            value = value.rsplit("/", 1)[1]
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            value = slim(value)
        elif key == "properties":
            value = {name: slim(field) for name, field in value.items()}
        elif key == "enum":
            value = [v for v in value if v is not None]
        out[key] = value
    return out


def references(schema):
    if "$ref" in schema:
        yield schema["$ref"]
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from references(schema[key])
    for field in schema.get("properties", {}).values():
        yield from references(field)


def main():
    source = json.load(open(sys.argv[1]))
    source = source.get("$defs") or source["definitions"]
    definitions, todo = {}, []
    for name, schema in source.items():
        for gvk in schema.get("x-kubernetes-group-version-kind", []):
            if gvk["version"] in VERSIONS and gvk["kind"] in KINDS.get(gvk["group"], []):
                todo.append(name)
    found = {(g["group"], g["kind"]) for n in todo for g in source[n]["x-kubernetes-group-version-kind"]}
    missing = {(g, k) for g, kinds in KINDS.items() for k in kinds} - found
    if missing:
        sys.exit(f"not in the input: {sorted(missing)}")
    while todo:
        name = todo.pop()
        if name in definitions:
            continue
        if name in SCALARS:
            definitions[name] = SCALARS[name]
        elif name in ANYTHING or name.endswith(".JSON"):
            definitions[name] = {"x-kubernetes-preserve-unknown-fields": True}
        else:
            definitions[name] = slim(source[name])
            todo.extend(references(definitions[name]))
    for (name, field), value in DEFAULTS.items():
        definitions[name]["properties"][field]["default"] = value
    # A kind's own apiVersion and kind are listed as enums in some packagings of the document.
    for schema in definitions.values():
        for key in ("apiVersion", "kind"):
            schema.get("properties", {}).get(key, {}).pop("enum", None)
    lines = [f"{json.dumps(n)}:{json.dumps(s, sort_keys=True, separators=(',', ':'))}" for n, s in sorted(definitions.items())]
    print("{\n" + ",\n".join(lines) + "\n}")


main()
