"""One object of every kind that no recorded snapshot holds, with what planning reads of it.

``read`` names fields that must survive, as paths; beside them stand some that must not.
"""

from __future__ import annotations

from typing import Any

import yaml

_TEXT = """
- group: kai.scheduler
  object:
    kind: Topology
    metadata: {name: dc}
    spec: {levels: [{nodeLabel: rack, alias: r}, {nodeLabel: kubernetes.io/hostname}]}
  read: [spec.levels.0.nodeLabel, spec.levels.1.nodeLabel, spec.levels.0.alias]
- group: scheduling.run.ai
  object:
    kind: PodGroup
    metadata: {name: pg, namespace: a}
    spec:
      minMember: 4
      queue: q
      priorityClassName: train
      preemptibility: preemptible
      topologyConstraint: {topology: dc, requiredTopologyLevel: rack}
      subGroups:
      - name: decode
        minMember: 2
        parent: all
        topologyConstraint: {topology: dc, preferredTopologyLevel: rack}
    status: {phase: Pending, schedulingConditions: [{reasons: [{message: no room}]}]}
  read:
  - spec.minMember
  - spec.queue
  - spec.preemptibility
  - spec.topologyConstraint.requiredTopologyLevel
  - spec.subGroups.0.minMember
  - spec.subGroups.0.parent
  - spec.subGroups.0.topologyConstraint.preferredTopologyLevel
- group: scheduling.run.ai
  object:
    kind: Queue
    metadata: {name: q}
    spec:
      displayName: Q
      parentQueue: top
      priority: 5
      resources: {gpu: {quota: 8, overQuotaWeight: 1, limit: -1}}
  read: [spec.parentQueue, spec.priority, spec.resources.gpu.quota, spec.resources.gpu.limit]
- group: kueue.x-k8s.io
  object:
    kind: Cohort
    metadata: {name: all}
    spec:
      parentName: top
      parent: top
      fairSharing: {weight: 1500m}
      resourceGroups:
      - coveredResources: [nvidia.com/gpu]
        flavors:
        - name: h100
          resources: [{name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: "4"}]
    status: {fairSharing: {weightedShare: 1}}
  read:
  - spec.parentName
  - spec.parent
  - spec.fairSharing.weight
  - spec.resourceGroups.0.flavors.0.name
  - spec.resourceGroups.0.flavors.0.resources.0.nominalQuota
  - spec.resourceGroups.0.flavors.0.resources.0.borrowingLimit
- group: kueue.x-k8s.io
  object:
    kind: ClusterQueue
    metadata: {name: q}
    spec:
      cohortName: all
      preemption: {reclaimWithinCohort: Any, borrowWithinCohort: {policy: Never}}
      fairSharing: {weight: "2"}
      namespaceSelector: {matchLabels: {team: a}}
      resourceGroups: [{flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]}]
  read:
  - spec.cohortName
  - spec.preemption.reclaimWithinCohort
  - spec.fairSharing.weight
  - spec.namespaceSelector.matchLabels.team
  - spec.resourceGroups.0.flavors.0.resources.0.nominalQuota
- group: scheduling.x-k8s.io
  object:
    kind: ElasticQuota
    metadata: {name: eq, namespace: a}
    spec: {min: {nvidia.com/gpu: "4"}, max: {nvidia.com/gpu: 8}}
    status: {used: {nvidia.com/gpu: 1}}
  read: [spec.min, spec.max]
- group: kueue.x-k8s.io
  object:
    kind: Workload
    metadata: {name: w, namespace: a}
    spec:
      queueName: q
      priority: 7
      priorityClassSource: scheduling.k8s.io/priorityclass
      priorityClassRef: {group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: high}
      active: true
      podSets:
      - name: main
        count: 4
        minCount: 2
        topologyRequest:
          required: rack
          podSetSliceRequiredTopology: host
          podSetSliceSize: 2
          podsetSliceRequiredTopologyConstraints: [{topology: rack, size: 2}]
        template:
          spec: {containers: [{name: c, resources: {requests: {nvidia.com/gpu: 8}}}]}
    status:
      conditions: [{type: Admitted, status: "True", lastTransitionTime: "2026-11-20T10:00:00Z"}]
      admission:
        clusterQueue: cq
        podSetAssignments:
        - name: main
          count: 4
          flavors: {nvidia.com/gpu: h100}
          resourceUsage: {nvidia.com/gpu: "32"}
          topologyAssignment:
            levels: [rack, kubernetes.io/hostname]
            domains: [{values: [r1, n1], count: 4}]
            slices:
            - domainCount: 2
              valuesPerLevel: [{universal: r1}, {individual: {prefix: n, roots: ["1", "2"]}}]
              podCounts: {universal: 2}
      unhealthyNodes: [{name: n2}]
  read:
  - spec.priorityClassSource
  - spec.priorityClassRef.name
  - spec.podSets.0.minCount
  - spec.podSets.0.template.spec.containers.0.resources.requests
  - status.conditions.0.lastTransitionTime
- group: scheduling.k8s.io
  object:
    kind: Workload
    metadata: {name: w, namespace: a}
    spec:
      controllerRef: {apiGroup: batch, kind: Job, name: j}
      podGroupTemplates:
      - name: workers
        schedulingPolicy: {gang: {minCount: 8}}
        schedulingConstraints: {topology: [{key: rack}]}
      - name: launcher
        schedulingPolicy: {basic: {}}
  read:
  - spec.controllerRef.name
  - spec.podGroupTemplates.0.schedulingPolicy.gang.minCount
  - spec.podGroupTemplates.0.schedulingConstraints.topology.0.key
  - spec.podGroupTemplates.1.schedulingPolicy.basic
- group: scheduling.k8s.io
  object:
    kind: CompositePodGroup
    metadata: {name: both, namespace: a}
    spec: {parentCompositePodGroupName: all, schedulingPolicy: {gang: {minCount: 2}}}
  read: [spec.parentCompositePodGroupName, spec.schedulingPolicy.gang.minCount]
- group: resource.k8s.io
  object:
    kind: DeviceTaintRule
    metadata: {name: sick}
    spec:
      deviceSelector: {driver: gpu.nvidia.com, pool: n1, device: gpu-3}
      taint: {key: sick, effect: NoExecute, timeAdded: "2026-11-20T08:00:00Z"}
  read: [spec.deviceSelector.driver, spec.deviceSelector.device, spec.taint.effect]
- group: scheduler.grove.io
  object:
    kind: PodGang
    metadata: {name: g, namespace: a}
    spec:
      topologyConstraint: {packConstraint: {required: rack, preferred: host}}
      podgroups: [{name: prefill, minReplicas: 2, podReferences: [{namespace: a, name: p1}]}]
    status: {placementScore: 0.5}
  read:
  - spec.topologyConstraint.packConstraint.required
  - spec.podgroups.0.podReferences.0.name
- group: kubeflow.org
  object:
    kind: TFJob
    metadata: {name: tf, namespace: a}
    spec:
      runPolicy: {suspend: true, schedulingPolicy: {minAvailable: 3, queue: q}}
      tfReplicaSpecs:
        PS: {replicas: 1, template: {spec: {containers: [{name: tensorflow}]}}}
        Worker:
          replicas: 2
          template:
            spec: {containers: [{name: tensorflow, resources: {limits: {nvidia.com/gpu: 1}}}]}
  read:
  - spec.runPolicy.schedulingPolicy.minAvailable
  - spec.tfReplicaSpecs.PS.replicas
  - spec.tfReplicaSpecs.Worker.template.spec.containers.0.resources.limits
- group: trainer.kubeflow.org
  object:
    kind: TrainJob
    metadata: {name: tj, namespace: a}
    spec:
      runtimeRef: {name: torch, kind: ClusterTrainingRuntime}
      suspend: false
      trainer: {numNodes: 4, numProcPerNode: 8, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}
      initializer: {dataset: {storageUri: "s3://x", secretRef: {name: s}}}
  read: [spec.runtimeRef.name]
- group: kueue.x-k8s.io
  object: {kind: WorkloadPriorityClass, metadata: {name: wpc}, value: 10, description: for sweeps}
  read: [value]
- group: trainer.kubeflow.org
  object:
    kind: TrainingRuntime
    metadata: {name: tr, namespace: a}
    spec:
      mlPolicy:
        numNodes: 2
        torch: {numProcPerNode: gpu, elasticPolicy: {minNodes: 2, maxNodes: 4, maxRestarts: 3}}
      template: {spec: {replicatedJobs: [{name: node}]}}
  read: [spec.mlPolicy.torch.elasticPolicy.minNodes, spec.mlPolicy.torch.elasticPolicy.maxNodes]
- group: trainer.kubeflow.org
  object:
    kind: ClusterTrainingRuntime
    metadata: {name: ctr}
    spec:
      mlPolicy:
        numNodes: 2
        torch: {numProcPerNode: gpu, elasticPolicy: {minNodes: 2, maxNodes: 4, maxRestarts: 3}}
  read: [spec.mlPolicy.torch.elasticPolicy.minNodes, spec.mlPolicy.torch.elasticPolicy.maxNodes]
- group: ray.io
  object:
    kind: RayCluster
    metadata: {name: rc, namespace: a}
    spec:
      headGroupSpec: {rayStartParams: {redis-password: s}, template: {spec: {containers: [{name: head}]}}}
      workerGroupSpecs:
      - groupName: gpu
        replicas: 2
        minReplicas: 1
        maxReplicas: 4
        numOfHosts: 2
        rayStartParams: {redis-password: s}
        template: {spec: {containers: [{name: w, resources: {requests: {nvidia.com/gpu: 8}}}]}}
  read:
  - spec.workerGroupSpecs.0.groupName
  - spec.workerGroupSpecs.0.numOfHosts
  - spec.workerGroupSpecs.0.template.spec.containers.0.resources.requests
- group: ray.io
  object:
    kind: RayJob
    metadata: {name: rj, namespace: a}
    spec:
      entrypoint: python train.py
      runtimeEnvYAML: "env_vars: {A: B}"
      rayClusterSpec: {workerGroupSpecs: [{groupName: gpu, replicas: 2}]}
    status: {rayClusterName: rj-1}
  read: [spec.rayClusterSpec.workerGroupSpecs.0.replicas]
- group: resource.nvidia.com
  object:
    kind: ComputeDomain
    metadata: {name: cd, namespace: a}
    spec: {numNodes: 4, channel: {resourceClaimTemplate: {name: cd-channel}}}
    status: {status: Ready, nodes: [{name: n1, cliqueID: u.0, ipAddress: 10.0.0.1}]}
  read: [spec.channel.resourceClaimTemplate.name]
- group: policy
  object:
    kind: PodDisruptionBudget
    metadata: {name: b, namespace: a, generation: 3}
    spec:
      minAvailable: 3
      selector: {matchLabels: {app: a}, matchExpressions: [{key: t, operator: In, values: [x]}]}
      unhealthyPodEvictionPolicy: AlwaysAllow
    status:
      observedGeneration: 3
      disruptionsAllowed: 1
      currentHealthy: 4
      desiredHealthy: 3
      disruptedPods: {p0: "2026-11-22T10:00:00Z"}
      conditions: [{type: DisruptionAllowed, status: "True", reason: SufficientPods}]
  read:
  - metadata.generation
  - spec.selector.matchLabels.app
  - spec.selector.matchExpressions.0.values
  - spec.unhealthyPodEvictionPolicy
  - status.observedGeneration
  - status.disruptionsAllowed
  - status.currentHealthy
  - status.desiredHealthy
  - status.conditions.0.reason
- group: ""
  object:
    kind: PersistentVolume
    metadata: {name: pv, labels: {topology.kubernetes.io/zone: z}}
    spec:
      claimRef: {namespace: a, name: c, uid: u}
      csi: {volumeHandle: h, nodePublishSecretRef: {name: s}}
      nodeAffinity:
        required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [z]}]}]}
  read:
  - spec.claimRef.name
  - spec.nodeAffinity.required.nodeSelectorTerms.0.matchExpressions.0.values
  - metadata.labels
- group: ""
  object:
    kind: PersistentVolumeClaim
    metadata: {name: c, namespace: a}
    spec: {volumeName: pv, storageClassName: fast}
    status: {phase: Bound}
  read: [spec.volumeName, spec.storageClassName]
- group: storage.k8s.io
  object:
    kind: StorageClass
    metadata: {name: fast}
    parameters: {csi.storage.k8s.io/provisioner-secret-name: s}
    volumeBindingMode: WaitForFirstConsumer
  read: [volumeBindingMode]
- group: node.k8s.io
  object:
    kind: RuntimeClass
    metadata: {name: nvidia}
    handler: nvidia
    scheduling: {nodeSelector: {gpu: "yes"}, tolerations: [{key: gpu}]}
  read: [scheduling.nodeSelector, scheduling.tolerations.0.key]
"""

SAMPLES: list[dict[str, Any]] = yaml.safe_load(_TEXT)
