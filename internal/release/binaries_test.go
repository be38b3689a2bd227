package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckInfo(t *testing.T) {
	r := rehearsal{version: "v0.1.0"}
	require.NoError(t, r.checkInfo(info(t)))
	for from, c := range map[string]struct{ to, want string }{
		"spillwayd\tv0.1.0":                     {"spillwayd\tv0.2.0", "is " + daemon + " v0.2.0, not"},
		"path\t" + daemon:                       {"path\t" + base + "/other", "other v0.1.0, not"},
		"\th1:" + strings.Repeat("A", 43) + "=": {"", daemon + " has no checksum"},
		"-trimpath=true":                        {"-trimpath=false", "-trimpath=false, not true"},
		"build\t-trimpath=true\n":               {"", "-trimpath=, not true"},
		"CGO_ENABLED=0":                         {"CGO_ENABLED=1", "CGO_ENABLED=1, not 0"},
		"GOOS=linux":                            {"GOOS=linux\nbuild\tvcs.revision=0123", "names a repository: vcs.revision=0123"},
		"\th1:VlbKKnNfV8bJzeqoa4cOKqO6bYr3WgKZxO8Z16+hsOM=": {"", "beorn7/perks has no checksum"},
		"dep\tgolang.org/x/time\tv0.15.0\th1:bbrp8t3bGUeFOx08pvsMYRTCVSMk89u4tKbNOZbp88U=": {
			"dep\tgolang.org/x/time\tv0.15.0\n=>\t/tmp/time\t(devel)\t", "golang.org/x/time has no checksum",
		},
	} {
		require.ErrorContains(t, r.checkInfo(info(t, from, c.to)), c.want)
	}
}

func TestNoticed(t *testing.T) {
	const notices = "===\ngithub.com/beorn7/perks v1.0.1, LICENSE\ngolang.org/x/time v0.15.0, LICENSE\n===\n"
	require.NoError(t, noticed(info(t), notices))
	require.NoError(t, noticed(info(t, "github.com/beorn7/perks", base+"/rules/yaml"), notices), "ours need none")
	require.ErrorContains(t, noticed(info(t, "v1.0.1", "v1.0.10"), notices), "does not name github.com/beorn7/perks v1.0.10")
	require.ErrorContains(t, noticed(info(t, "dep\tgolang", "dep\tother.golang"), notices), "does not name other.golang.org/x/time v0.15.0")
}

func TestCheckPaths(t *testing.T) {
	present, err := open("../..")
	require.NoError(t, err)
	r := rehearsal{tree: present, dir: t.TempDir()}
	require.NoError(t, r.checkPaths([]byte("\x00github.com/spillway-go/spillway@v0.1.0/gate.go\x00")))
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	caches, err := r.caches()
	require.NoError(t, err)
	for _, dir := range []string{root, r.dir, caches["GOMODCACHE"], caches["GOROOT"], caches["GOCACHE"]} {
		require.NotEmpty(t, dir)
		require.ErrorContains(t, r.checkPaths([]byte("\x00"+dir+"/file.go\x00")), "names the folder "+dir)
	}
}

// A signature is valid for what was signed, by the key that is listed, and for nothing else.
func TestSignature(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed")
	}
	folder := t.TempDir()
	put(t, folder, "spillwayd_b", "b")
	put(t, folder, "spillwayd_a", "a")
	sums, err := checksums(folder)
	require.NoError(t, err)
	text, err := os.ReadFile(sums)
	require.NoError(t, err)
	const hashA, hashB = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb", "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"
	require.Equal(t, hashA+"  spillwayd_a\n"+hashB+"  spillwayd_b\n", string(text))

	r := rehearsal{tree: &tree{root: t.TempDir()}, dir: t.TempDir()}
	signers, err := r.signWith("", sums)
	require.NoError(t, err)
	require.NoError(t, verify(sums, signers))

	stranger := rehearsal{tree: r.tree, dir: t.TempDir()}
	put(t, folder, "copy", string(text))
	others, err := stranger.signWith("", filepath.Join(folder, "copy"))
	require.NoError(t, err)
	require.Error(t, verify(sums, others), "by the key of a stranger")

	require.NoError(t, os.WriteFile(sums, []byte(strings.Replace(string(text), "ca97", "ca98", 1)), 0o600))
	require.Error(t, verify(sums, signers), "after a change")
	require.NoError(t, os.WriteFile(sums, text, 0o600))
	require.NoError(t, verify(sums, signers))

	// With a key, the signature must be valid by the public keys in the tree.
	require.NoError(t, os.Remove(sums+".sig"))
	listed, err := r.signWith(filepath.Join(r.dir, "key"), sums)
	require.NoError(t, err)
	require.Error(t, verify(sums, listed), "no public key is there")
	public, err := os.ReadFile(signers)
	require.NoError(t, err)
	put(t, r.tree.root, publicKey, string(public))
	require.NoError(t, verify(sums, listed))
}

// A release is made of a commit that has the tags of all modules.
func TestCheckTags(t *testing.T) {
	root := t.TempDir()
	put(t, root, "go.mod", "module "+base+"\n")
	put(t, root, "cluster/go.mod", "module "+base+"/cluster\n")
	commit(t, root)
	tagged, err := open(root)
	require.NoError(t, err)
	require.ErrorContains(t, tagged.checkTags("v0.1.0"), "has no tag ")
	git(t, root, "tag", "v0.1.0")
	require.ErrorContains(t, tagged.checkTags("v0.1.0"), "has no tag cluster/v0.1.0")
	git(t, root, "tag", "cluster/v0.1.0")
	require.NoError(t, tagged.checkTags("v0.1.0"))
	put(t, root, "new", "")
	require.ErrorContains(t, tagged.checkTags("v0.1.0"), "?? new")
}

// A release needs go.mod files with its version, and a folder without other files.
func TestUnpreparedTreeIsNotReleased(t *testing.T) {
	present, err := open("../..")
	require.NoError(t, err)
	r := rehearsal{tree: present, version: "v0.1.0", dir: t.TempDir(), final: true}
	require.ErrorContains(t, r.packAll(), "/go.mod is not that of v0.1.0")

	full := t.TempDir()
	put(t, full, "file", "")
	require.ErrorContains(t, r.distribute(full, ""), "is not an empty folder")
}
