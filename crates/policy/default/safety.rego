# The policy that holds while there is none: what an operator with care for production would say.
#
#   deny              protected objects and namespaces, too many or too few replicas, the last node that takes pods,
#                     control-plane nodes, what a dry run showed to fail
#   require_approval  production; high risk; what a Freeze holds and somebody overrode; what a GitOps tool manages
#   require_dry_run   the same, and changes that are written by hand (patches and manifests)
#
# docs/policy.md says which labels and annotations it reads. A ConfigMap labelled `pawl.dev/policy: safety` in Pawl's
# namespace takes its place: copy this file and change it.
package pawl.safety

import rego.v1

decision := {
	"allow": count(deny) == 0,
	"deny": deny,
	"require_approval": require_approval,
	"require_dry_run": require_dry_run,
	"approvers": {"groups": [], "count": approvals},
	"approval_timeout": "1h",
	"risk": risk,
	"allow_gitops": allow_gitops,
}

# Who changes nothing may always do so.
changes if input.action != "notify_only"

# ---- what it is about

objects := input.targets if {
	count(input.targets) > 0
} else := [input.target] if {
	is_object(input.target)
} else := []

# A parameter of the action, whether or not it is within the member of the union.
parameter(name) := value if {
	value := input.parameters[name]
} else := value if {
	some inner in input.parameters
	value := inner[name]
}

# Every namespace it is about, with its labels: what a node is in has none.
namespaces[name] := labels if some name, labels in input.namespaces

namespaces[name] := labels if {
	not input.namespaces
	name := input.namespace.name
	is_string(name)
	labels := input.namespace.labels
}

namespace_label(name, key) := value if {
	value := namespaces[name][key]
} else := ""

label(object_, key) := value if {
	value := object_.metadata.labels[key]
} else := ""

annotation(object_, key) := value if {
	value := object_.metadata.annotations[key]
} else := ""

# ---- production

production if {
	some name, _ in namespaces
	some key in ["pawl.dev/environment", "environment", "env"]
	namespace_label(name, key) in {"production", "prod"}
}

production if {
	some name, _ in namespaces
	regex.match(`^(prod|production|prod-.*|.*-prod|.*-production)$`, name)
}

# ---- protected

system_namespaces := {"kube-system", "kube-public", "kube-node-lease"}

deny contains msg if {
	changes
	some name, _ in namespaces
	name in system_namespaces
	msg := sprintf("namespace %s is the cluster's own", [name])
}

deny contains msg if {
	changes
	some name, _ in namespaces
	namespace_label(name, "pawl.dev/protected") == "true"
	msg := sprintf("namespace %s is protected by its label pawl.dev/protected", [name])
}

deny contains msg if {
	changes
	some object_ in objects
	"true" in {label(object_, "pawl.dev/protected"), annotation(object_, "pawl.dev/protected")}
	msg := sprintf("%s %s is protected by pawl.dev/protected", [object_.kind, object_.metadata.name])
}

# ---- replicas

max_replicas := 100

scales if input.action in {"scale_deployment", "scale_statefulset", "update_hpa"}

highest := parameter("replicas") if {
	input.action in {"scale_deployment", "scale_statefulset"}
} else := parameter("maxReplicas") if {
	input.action == "update_hpa"
}

lowest := parameter("replicas") if {
	input.action in {"scale_deployment", "scale_statefulset"}
} else := parameter("minReplicas") if {
	input.action == "update_hpa"
}

upper_limit := to_number(annotation(input.target, "pawl.dev/max-replicas")) if {
	scales
	annotation(input.target, "pawl.dev/max-replicas") != ""
} else := max_replicas

lower_limit := to_number(annotation(input.target, "pawl.dev/min-replicas")) if {
	scales
	annotation(input.target, "pawl.dev/min-replicas") != ""
} else := 1 if {
	production
} else := 0

deny contains msg if {
	scales
	highest > upper_limit
	msg := sprintf("%d replicas are more than the %d that are allowed (pawl.dev/max-replicas on the target)", [highest, upper_limit])
}

deny contains msg if {
	scales
	lowest < lower_limit
	msg := sprintf("%d replicas are fewer than the %d that must be left (pawl.dev/min-replicas on the target)", [lowest, lower_limit])
}

deny contains msg if {
	scales
	some key in ["pawl.dev/max-replicas", "pawl.dev/min-replicas"]
	limit := annotation(input.target, key)
	limit != ""
	not regex.match(`^[0-9]{1,4}$`, limit)
	msg := sprintf("the annotation %s of the target is %q, not a number", [key, limit])
}

# ---- nodes

closes_node if input.action in {"cordon_node", "drain_node"}

closes_node if {
	input.action == "taint_node"
	parameter("effect") in {"NoSchedule", "NoExecute"}
}

acts_on_node if closes_node

acts_on_node if input.action in {"taint_node", "untaint_node", "uncordon_node"}

# One that takes no pods already is not counted among those that do.
takes_pods if not input.target.spec.unschedulable

deny contains "this is the last node that takes new pods" if {
	closes_node
	takes_pods
	input.cluster.schedulableNodes <= 1
}

deny contains "how many nodes take new pods is not known" if {
	closes_node
	not is_number(input.cluster.schedulableNodes)
}

control_plane_labels := ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"]

deny contains msg if {
	acts_on_node
	some key in control_plane_labels
	_ = input.target.metadata.labels[key]
	msg := sprintf("node %s belongs to the control plane", [input.target.metadata.name])
}

# ---- what a dry run showed

deny contains "the dry run failed" if input.dryRun.success == false

# ---- GitOps

gitops_labels := [
	"argocd.argoproj.io/instance",
	"kustomize.toolkit.fluxcd.io/name",
	"helm.toolkit.fluxcd.io/name",
]

gitops_managed if {
	some object_ in objects
	some key in gitops_labels
	label(object_, key) != ""
}

gitops_managed if {
	some object_ in objects
	annotation(object_, "argocd.argoproj.io/tracking-id") != ""
}

# What a GitOps tool manages it would change back: only where every namespace says that this is wanted.
default allow_gitops := false

allow_gitops if {
	count(namespaces) > 0
	every name, _ in namespaces {
		namespace_label(name, "pawl.dev/allow-gitops") == "true"
	}
}

# ---- what was frozen, and somebody overrode it

overrides_freeze if count(input.freezes) > 0

# ---- risk

risky_actions := {"drain_node", "apply_manifest", "patch_deployment", "update_secret", "taint_node", "expand_pvc"}

harmless_actions := {"notify_only", "uncordon_node"}

high_risk if input.action in risky_actions

high_risk if {
	changes
	production
	closes_node
}

high_risk if {
	scales
	lowest == 0
}

risk := "low" if {
	input.action in harmless_actions
} else := "high" if {
	high_risk
} else := "medium"

# ---- approval and dry run

default require_approval := false

require_approval if {
	changes
	production
}

require_approval if high_risk

require_approval if {
	changes
	overrides_freeze
}

require_approval if {
	changes
	gitops_managed
}

approvals := 2 if {
	production
	high_risk
} else := 1

default require_dry_run := false

require_dry_run if require_approval

require_dry_run if input.action in {"apply_manifest", "patch_deployment"}
