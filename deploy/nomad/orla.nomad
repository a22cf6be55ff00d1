# Orla as a job of Nomad:
#
#   nomad var put nomad/jobs/orla token="$(openssl rand -hex 32)"
#   nomad job run -var image=registry.example.com/orla:0.1.0 orla.nomad
#
# Each allocation has its own capsules, sessions, approvals and pins. With several of them,
# have the balancer send a session to the one that began it (docs/KUBERNETES.md, "Without
# Kubernetes").
variable "image" {
  type        = string
  description = "Where the nodes find the image that make image builds"
}

variable "allocations" {
  type    = number
  default = 1
}

job "orla" {
  type = "service"

  group "orla" {
    count = var.allocations

    # Not all of them on one machine.
    spread {
      attribute = "${node.unique.id}"
    }

    network {
      port "http" {
        to = 8080
      }
    }

    # One after the other, each healthy before the next.
    update {
      max_parallel     = 1
      health_check     = "checks"
      min_healthy_time = "5s"
      healthy_deadline = "2m"
      auto_revert      = true
    }

    service {
      name     = "orla"
      port     = "http"
      provider = "nomad"

      check {
        type     = "http"
        path     = "/readyz"
        interval = "5s"
        timeout  = "2s"
      }
    }

    task "orla" {
      driver = "docker"
      user   = "65532:65532"

      # The balancer has to know first that it ends; then calls in flight have 30 s, and their
      # tools 15 s more to end. The agent's max_kill_timeout must allow it (30 s by default).
      shutdown_delay = "5s"
      kill_signal    = "SIGTERM"
      kill_timeout   = "50s"

      config {
        image           = var.image
        ports           = ["http"]
        args            = ["serve", "--config", "/local/orla.yaml"]
        readonly_rootfs = true
        cap_drop        = ["all"]
        security_opt    = ["no-new-privileges"]
        # Writable, and lost with the allocation.
        mount {
          type   = "tmpfs"
          target = "/tmp"
        }
      }

      env {
        STATE_DIRECTORY = "${NOMAD_ALLOC_DIR}/data"
      }

      template {
        destination = "local/orla.yaml"
        data        = <<-YAML
          listen: 0.0.0.0
          port: 8080
          tools_dir: /local/tools
          shutdown_grace: 30s
          auth:
            tokens:
              - name: client
                file: /secrets/token
        YAML
      }

      # Read again on SIGHUP.
      template {
        destination   = "secrets/token"
        perms         = "0440"
        gid           = 65532
        change_mode   = "signal"
        change_signal = "SIGHUP"
        data          = "{{ with nomadVar \"nomad/jobs/orla\" }}{{ .token }}{{ end }}"
      }

      # Tool resources. A file in local/tools is applied at once.
      template {
        destination     = "local/tools/hello.yaml"
        change_mode     = "noop"
        left_delimiter  = "[["
        right_delimiter = "]]"
        data            = <<-YAML
          apiVersion: orloj.dev/v1
          kind: Tool
          metadata:
            name: hello
          spec:
            type: http
            description: Greet somebody.
            endpoint: https://api.example.com/hello
        YAML
      }

      resources {
        cpu        = 200
        memory     = 256
        memory_max = 1024
      }
    }
  }
}
