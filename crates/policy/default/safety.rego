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

# ---- what it is about

objects := input.targets if {
	count(input.targets) > 0
} else := [input.target] if {
	is_object(input.target)
} else := []

# Of the action: the one member of the union.
parameters := [inner | some inner in input.parameters][0]

# Every namespace it is about, with its labels: what a node is in has none.
namespaces := input.namespaces if {
	input.namespaces
} else := {input.namespace.name: input.namespace.labels} if {
	is_string(input.namespace.name)
} else := {}

# ---- production

production if {
	some labels in namespaces
	labels["pawl.dev/environment"] in {"production", "prod"}
}

production if {
	some labels in namespaces
	labels.environment in {"production", "prod"}
}

production if {
	some labels in namespaces
	labels.env in {"production", "prod"}
}

production if {
	some name, _ in namespaces
	some part in split(name, "-")
	part in {"prod", "production"}
}

# ---- protected

deny contains msg if {
	input.action != "notify_only"
	some name, _ in namespaces
	name in {"kube-system", "kube-public", "kube-node-lease"}
	msg := sprintf("namespace %s is the cluster's own", [name])
}

deny contains msg if {
	input.action != "notify_only"
	some name, labels in namespaces
	labels["pawl.dev/protected"] == "true"
	msg := sprintf("namespace %s is protected by its label pawl.dev/protected", [name])
}

deny contains msg if {
	input.action != "notify_only"
	some object_ in objects
	object_.metadata.labels["pawl.dev/protected"] == "true"
	msg := sprintf("%s %s is protected by its label pawl.dev/protected", [object_.kind, object_.metadata.name])
}

deny contains msg if {
	input.action != "notify_only"
	some object_ in objects
	object_.metadata.annotations["pawl.dev/protected"] == "true"
	msg := sprintf("%s %s is protected by its annotation pawl.dev/protected", [object_.kind, object_.metadata.name])
}

# ---- replicas

scales if input.action in {"scale_deployment", "scale_statefulset", "update_hpa"}

# Those of an autoscaler are its bounds.
highest := parameters.replicas

highest := parameters.maxReplicas

lowest := parameters.replicas

lowest := parameters.minReplicas

limits := input.target.metadata.annotations

upper_limit := to_number(limits["pawl.dev/max-replicas"]) if {
	limits["pawl.dev/max-replicas"]
} else := 100

lower_limit := to_number(limits["pawl.dev/min-replicas"]) if {
	limits["pawl.dev/min-replicas"]
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
	limit := limits[key]
	not regex.match(`^[0-9]{1,4}$`, limit)
	msg := sprintf("the annotation %s of the target is %q, not a number", [key, limit])
}

# ---- nodes

closes_node if input.action in {"cordon_node", "drain_node"}

closes_node if {
	input.action == "taint_node"
	parameters.effect in {"NoSchedule", "NoExecute"}
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

deny contains msg if {
	acts_on_node
	some key in ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"]
	_ = input.target.metadata.labels[key]
	msg := sprintf("node %s belongs to the control plane", [input.target.metadata.name])
}

# ---- what a dry run showed

deny contains "the dry run failed" if input.dryRun.success == false

# ---- GitOps

gitops_managed if {
	some object_ in objects
	object_.metadata.annotations["argocd.argoproj.io/tracking-id"]
}

gitops_managed if {
	some object_ in objects
	object_.metadata.labels["argocd.argoproj.io/instance"]
}

gitops_managed if {
	some object_ in objects
	object_.metadata.labels["kustomize.toolkit.fluxcd.io/name"]
}

gitops_managed if {
	some object_ in objects
	object_.metadata.labels["helm.toolkit.fluxcd.io/name"]
}

# What a GitOps tool manages it would change back: only where every namespace says that this is wanted.
default allow_gitops := false

allow_gitops if {
	count(namespaces) > 0
	every labels in namespaces {
		labels["pawl.dev/allow-gitops"] == "true"
	}
}

# ---- what was frozen, and somebody overrode it

overrides_freeze if count(input.freezes) > 0

# ---- risk

high_risk if input.action in {"drain_node", "apply_manifest", "patch_deployment", "update_secret", "taint_node", "expand_pvc"}

high_risk if {
	input.action != "notify_only"
	production
	closes_node
}

high_risk if {
	scales
	lowest == 0
}

risk := "low" if {
	input.action in {"notify_only", "uncordon_node"}
} else := "high" if {
	high_risk
} else := "medium"

# ---- approval and dry run

default require_approval := false

require_approval if {
	input.action != "notify_only"
	production
}

require_approval if high_risk

require_approval if {
	input.action != "notify_only"
	overrides_freeze
}

require_approval if {
	input.action != "notify_only"
	gitops_managed
}

approvals := 2 if {
	production
	high_risk
} else := 1

default require_dry_run := false

require_dry_run if require_approval

require_dry_run if input.action in {"apply_manifest", "patch_deployment"}
